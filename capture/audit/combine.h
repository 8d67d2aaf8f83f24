// Steps put together: a parameter's class and what its finalizer does are the same in all of them
// (theory section 9.3: stack steps), replicas that part stay parted.
#pragma once

#include <span>
#include <vector>

#include "capture/audit/audit.h"
#include "capture/audit/judge_param.h"

namespace sumonce::capture {

// `judgements`: of one parameter, ascending steps. The verdict with its possibilities.
// `unused_hint`: as AuditOptions::unused_hints, or null.
AuditedParam Combine(const ParamGeometry& geometry, std::span<const ParamJudgement> judgements,
                     const ClassHint* unused_hint);

// Below a parameter of mixed use the gradient arrives wrong, so that differing contributions prove
// nothing more there: such verdicts become UPSTREAM, consequences of it. The same for parameters
// that hints name below one operation.
void ListConsequences(const ClassHints* hints, std::vector<AuditedParam>& params);

// The verdict that a set of conclusions gives: one if all agree, else NO_STATEMENT with the set if
// it contains RIGHT, else the first with the set.
Verdict VerdictOf(std::span<const Conclusion> conclusions, const ClassHint* unused_hint);

}  // namespace sumonce::capture

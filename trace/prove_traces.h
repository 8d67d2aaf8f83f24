// The verdicts of a traced job, in the structures that every reporter takes.
#pragma once

#include <map>
#include <string>

#include "trace/declaration.h"
#include "trace/prover.h"
#include "trace/trace_set.h"
#include "verify/verdict.h"

namespace sumonce::trace {

// What is said of each trainable parameter, by name, and the conditions. Nothing is RIGHT without
// the trace at twice the size and the unsharded one, or if the traces are not the same program:
// `refused` says so then, and what to do.
struct TraceProof {
  std::string refused;
  std::map<std::string, Proof> proofs;
  std::map<std::string, CureTrial> cures;  // where there is one
  std::map<int, Refusal> refusals;
  std::vector<std::string> conditions;
};
TraceProof ProveTraces(const TraceSet& set, const DeclarationTable& table = Declarations());

// The same as a result, with cures where a mark or a sum cures it. `dir` as the user gave it.
ScenarioResult JudgeTraces(const TraceSet& set, const std::string& dir);

// The operations on the way to a parameter's gradient where its state changed, one line each, last
// first. NotFound: no such trainable parameter, with the nearest name.
absl::StatusOr<std::vector<std::string>> ExplainTraces(const TraceSet& set,
                                                       const std::string& param);

}  // namespace sumonce::trace

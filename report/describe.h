// The words in which reports say a result: one wording for all formats.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "verify/verdict.h"

namespace sumonce {

std::string_view Name(RunOutcome outcome);  // "PASS", "FAIL", "SKIP"

// What a mechanism is, in one phrase: "each rank holds its own share, and nobody adds them up".
// Empty for kNone.
std::string_view Meaning(Mechanism mechanism);

// What the verdict is about: the parameter, "the gradient norm" or "the run itself".
std::string SubjectOf(const Verdict& verdict);

// "MISSING_SUM over tp, coefficient none: per rank"; "NO_STATEMENT at *.in_proj/AllGather#0";
// "RIGHT".
std::string VerdictText(const Verdict& verdict);

// "WRONG: DOUBLE_SUM over tp, coefficient tp"; "NO_STATEMENT at <operation>: <reason>"; "RIGHT".
std::string ProofText(const Proof& proof);

// "none", "SUM over tp": what the finalizer did along the verdict's axis. Empty if not known.
std::string ActionText(const Verdict& verdict);

// "leads to REPLICA_DRIFT, EXPORT_DIFFERS"; empty if it has no consequences.
std::string ConsequencesText(const Verdict& verdict);

// "cure tried: right, in numbers and for every tp"; "cure not tried".
std::string TrialText(const CureTrial& trial);

// "1 call and 2.0 KiB a step more, 3.1 us (+- 0.4 us) on in_process threads, 4 ranks"; "nothing"
// for a cure that moves no data.
std::string CostText(const CureCost& cost);

// The axes larger than one: "tp=4 dp=2"; "tp=1" if there is none.
std::string MeshText(const MeshSizes& mesh);

// "850 us", "12.3 ms", "2.35 s".
std::string ElapsedText(double elapsed_us);

// An element of a rank table: exactly zero is "0", and nothing else is; NaN, for a rank without the
// tensor, is "-"; otherwise four significant digits.
std::string NumberText(double value);

// "a", "a, b", "a, b and 10 more".
std::string ListText(const std::vector<std::string>& items, size_t shown);

// The place of a declaration as compilers print it, "file:14:3"; without what is not known.
std::string LocationText(const Location& location);

}  // namespace sumonce

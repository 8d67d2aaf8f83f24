#include "report/describe.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce {
namespace {

// " over tp", ", coefficient tp": what qualifies a mechanism.
std::string Qualified(Mechanism mechanism, std::optional<Axis> axis,
                      const std::string& coefficient) {
  std::string text(Name(mechanism));
  if (axis) absl::StrAppend(&text, " over ", ToAbsl(Name(*axis)));
  if (!coefficient.empty()) absl::StrAppend(&text, ", coefficient ", coefficient);
  return text;
}

std::string OutcomeAt(Outcome outcome, const std::string& operation) {
  std::string text(Name(outcome));
  if (!operation.empty()) absl::StrAppend(&text, " at ", operation);
  return text;
}

std::string BytesText(int64_t bytes) {
  const double size = static_cast<double>(bytes);
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  if (bytes < 1024 * 1024) return absl::StrFormat("%.1f KiB", size / 1024);
  return absl::StrFormat("%.1f MiB", size / (1024 * 1024));
}

}  // namespace

std::string_view Name(RunOutcome outcome) {
  switch (outcome) {
    case RunOutcome::kPass:
      return "PASS";
    case RunOutcome::kFail:
      return "FAIL";
    case RunOutcome::kSkip:
      return "SKIP";
  }
  return "";
}

std::string_view Meaning(Mechanism mechanism) {
  switch (mechanism) {
    case Mechanism::kNone:
      return "";
    case Mechanism::kMissingSum:
      return "each rank holds its own share, and nobody adds them up";
    case Mechanism::kDoubleSum:
      return "what was already complete was summed once more";
    case Mechanism::kAveraged:
      return "the shares were averaged where they had to be summed";
    case Mechanism::kUnsummedShare:
      return "each rank holds an equal share of the gradient, and nobody adds them up";
    case Mechanism::kMixedShards:
      return "gradients of different slices were added to each other";
    case Mechanism::kWrongScale:
      return "off by a factor that no sum over the ranks explains";
    case Mechanism::kMixedUse:
      return "its uses need different actions: no single one is right";
    case Mechanism::kWrongGroup:
      return "reduced over other ranks than it needs";
    case Mechanism::kLostContribution:
      return "a rank's, a microbatch's or a use's term is absent, or there more than once";
    case Mechanism::kStale:
      return "a term of an earlier step is still in the buffer";
    case Mechanism::kUpstream:
      return "its gradient already arrives wrong";
    case Mechanism::kLocalGradient:
      return "a rank's backward is not the transpose of its forward";
    case Mechanism::kWrongShard:
      return "right numbers at wrong places";
    case Mechanism::kReplicaDrift:
      return "copies that have to be equal are not";
    case Mechanism::kNormMiscount:
      return "the global norm counts copies wrongly";
    case Mechanism::kExportDiffers:
      return "what is exported is not what was trained";
    case Mechanism::kCollectiveMismatch:
      return "ranks of one group made different calls";
    case Mechanism::kDeadlock:
      return "every rank waits for another";
    case Mechanism::kRankLost:
      return "a rank failed while others waited for it";
    case Mechanism::kNondeterministic:
      return "the same run gave other bits";
    case Mechanism::kNotFinite:
      return "infinite or not a number";
  }
  return "";
}

std::string SubjectOf(const Verdict& verdict) {
  if (!verdict.param.empty()) return verdict.param;
  return verdict.mechanism == Mechanism::kNormMiscount ? "the gradient norm" : "the run itself";
}

std::string VerdictText(const Verdict& verdict) {
  if (verdict.outcome != Outcome::kWrong) return OutcomeAt(verdict.outcome, verdict.operation);
  std::string text = Qualified(verdict.mechanism, verdict.axis, verdict.coefficient);
  if (!verdict.ranks.empty()) absl::StrAppend(&text, " on ", verdict.ranks);
  if (!verdict.operation.empty()) absl::StrAppend(&text, " at ", verdict.operation);
  return text;
}

std::string ProofText(const Proof& proof) {
  if (proof.outcome == Outcome::kWrong) {
    std::string text =
        absl::StrCat("WRONG: ", Qualified(proof.mechanism, proof.axis, proof.coefficient));
    if (!proof.ranks.empty()) absl::StrAppend(&text, " on ", proof.ranks);
    if (!proof.operation.empty()) absl::StrAppend(&text, " at ", proof.operation);
    return text;
  }
  std::string text = OutcomeAt(proof.outcome, proof.operation);
  if (!proof.reason.empty()) absl::StrAppend(&text, ": ", proof.reason);
  return text;
}

std::string ActionText(const Verdict& verdict) {
  if (verdict.action.empty() || verdict.action == "none" || !verdict.axis) return verdict.action;
  return absl::StrCat(verdict.action, " over ", ToAbsl(Name(*verdict.axis)));
}

std::string ConsequencesText(const Verdict& verdict) {
  std::vector<std::string> names;
  for (const Mechanism mechanism : verdict.consequences) names.emplace_back(Name(mechanism));
  return names.empty() ? "" : absl::StrCat("leads to ", absl::StrJoin(names, ", "));
}

std::string TrialText(const CureTrial& trial) {
  return trial.tried ? absl::StrCat("cure tried: ", trial.result) : "cure not tried";
}

std::string CostText(const CureCost& cost) {
  if (cost.calls == 0 && cost.bytes == 0) return "nothing: no data moves";
  const bool more = cost.bytes > 0 || (cost.bytes == 0 && cost.calls > 0);
  const int64_t calls = std::abs(cost.calls);
  std::string text = calls == 0 ? "no call" : calls == 1 ? "1 call" : absl::StrCat(calls, " calls");
  absl::StrAppend(&text, " and ", BytesText(std::abs(cost.bytes)), " a step ",
                  more ? "more" : "less", ", ", ElapsedText(std::abs(cost.seconds) * 1e6),
                  (cost.seconds < 0) == more ? " less" : "", " (+- ", ElapsedText(cost.error * 1e6),
                  ") on ", cost.basis);
  if (cost.extrapolated) absl::StrAppend(&text, ", extrapolated");
  return text;
}

std::string MeshText(const MeshSizes& mesh) {
  std::vector<std::string> parts;
  for (const auto& [name, size] :
       {std::pair("tp", mesh.tp), std::pair("cp", mesh.cp), std::pair("dp", mesh.dp),
        std::pair("pp", mesh.pp), std::pair("ep", mesh.ep), std::pair("etp", mesh.etp)}) {
    if (size > 1) parts.push_back(absl::StrCat(name, "=", size));
  }
  return parts.empty() ? "tp=1" : absl::StrJoin(parts, " ");
}

std::string ElapsedText(double elapsed_us) {
  if (elapsed_us < 999.5) return absl::StrFormat("%.0f us", elapsed_us);
  if (elapsed_us < 999.5e3) return absl::StrFormat("%.3g ms", elapsed_us / 1e3);
  return absl::StrFormat("%.3g s", elapsed_us / 1e6);
}

std::string NumberText(double value) {
  if (std::isnan(value)) return "-";
  return value == 0 ? "0" : absl::StrFormat("%.4g", value);
}

std::string ListText(const std::vector<std::string>& items, size_t shown) {
  if (items.size() <= shown) return absl::StrJoin(items, ", ");
  const std::vector<std::string> first(items.begin(), items.begin() + static_cast<long>(shown));
  return absl::StrCat(absl::StrJoin(first, ", "), " and ", items.size() - shown, " more");
}

std::string LocationText(const Location& location) {
  std::string text = location.file;
  if (location.line > 0) absl::StrAppend(&text, ":", location.line);
  if (location.line > 0 && location.column > 0) absl::StrAppend(&text, ":", location.column);
  return text;
}

}  // namespace sumonce

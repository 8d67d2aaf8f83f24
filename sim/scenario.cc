#include "sim/scenario.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce {
namespace {

std::string OnRanks(const std::vector<int>& ranks) {
  if (ranks.empty()) return "";
  return absl::StrCat(" on ", ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

std::string ForParams(const std::string& param) {
  return param == "*" ? "" : absl::StrCat(" for ", param);
}

// One sentence for each kind.
struct Describer {
  std::string operator()(const MarkEdit& edit) const {
    constexpr const char* kWhen[] = {"", " during its module's call", " after backward"};
    return absl::StrCat("set ", ToAbsl(Name(edit.mark)), edit.set ? "=true on " : "=false on ",
                        edit.param, kWhen[static_cast<int>(edit.when)], OnRanks(edit.ranks));
  }

  std::string operator()(const RuleEdit& edit) const {
    const std::string rule = absl::StrCat("the rule ", edit.rule, ForParams(edit.param));
    switch (edit.how) {
      case RuleEdit::How::kDrop:
        return "drop " + rule;
      case RuleEdit::How::kRepeat:
        return "run " + rule + " twice";
      case RuleEdit::How::kAverage:
        return "let " + rule + " average";
      case RuleEdit::How::kOtherGroup:
        return "let " + rule + " reduce over " + edit.group;
    }
    return rule;
  }

  std::string operator()(const AddRuleEdit& edit) const {
    return absl::StrCat("add a rule: ", edit.map == Map::kAvg ? "average " : "sum ", edit.param,
                        " over ", edit.group);
  }

  std::string operator()(const CollectiveEdit& edit) const {
    return absl::StrCat("let ", edit.operation, " do ", ToAbsl(Name(edit.map)),
                        edit.direction == Direction::kForward ? " in forward" : " in backward",
                        OnRanks(edit.ranks));
  }

  std::string operator()(const MicrobatchEdit& edit) const {
    return absl::StrCat(edit.repeat ? "count" : "lose", " microbatch ", edit.index, "'s term of ",
                        edit.param, edit.repeat ? " twice" : "");
  }

  std::string operator()(const StaleEdit& edit) const {
    return absl::StrCat("keep the last step's gradient buffer of ", edit.param,
                        OnRanks(edit.ranks));
  }

  std::string operator()(const PermuteEdit& edit) const {
    return absl::StrCat("rotate the rows of the local gradient of ", edit.param,
                        OnRanks(edit.ranks));
  }

  std::string operator()(const ScaleEdit& edit) const {
    return absl::StrCat("multiply the local gradient of ", edit.param, " by ", edit.factor,
                        OnRanks(edit.ranks));
  }

  std::string operator()(const CommunicationEdit& edit) const {
    return absl::StrCat("in the transport: ", Describe(edit.fault), OnRanks(edit.ranks));
  }

  std::string operator()(const RegionMarksEdit& edit) const {
    const std::string inside = " the marks inside the gather region of " + edit.module;
    switch (edit.marks) {
      case RegionMarks::kKeep:
        return "keep" + inside + ", toggle its modules only";
      case RegionMarks::kToggleAndRestore:
        return "clear" + inside + " and restore them with its modules";
      case RegionMarks::kLeaveOff:
        return "clear" + inside + " and leave them off";
    }
    return inside;
  }
};

constexpr std::array<std::string_view, 4> kOutcomes = {"RIGHT", "WRONG", "NO_STATEMENT",
                                                       "NO_EVIDENCE"};
constexpr std::array<std::string_view, 22> kMechanisms = {"NONE",
                                                          "MISSING_SUM",
                                                          "DOUBLE_SUM",
                                                          "AVERAGED",
                                                          "UNSUMMED_SHARE",
                                                          "MIXED_SHARDS",
                                                          "WRONG_SCALE",
                                                          "MIXED_USE",
                                                          "WRONG_GROUP",
                                                          "LOST_CONTRIBUTION",
                                                          "STALE",
                                                          "UPSTREAM",
                                                          "LOCAL_GRADIENT",
                                                          "WRONG_SHARD",
                                                          "REPLICA_DRIFT",
                                                          "NORM_MISCOUNT",
                                                          "EXPORT_DIFFERS",
                                                          "COLLECTIVE_MISMATCH",
                                                          "DEADLOCK",
                                                          "RANK_LOST",
                                                          "NONDETERMINISTIC",
                                                          "NOT_FINITE"};
static_assert(kMechanisms.size() == static_cast<size_t>(Mechanism::kNotFinite) + 1);

}  // namespace

std::string_view Name(Mark mark) {
  switch (mark) {
    case Mark::kSequenceParallel:
      return "sequence_parallel";
    case Mark::kAverageGradientsAcrossTpDomain:
      return "average_gradients_across_tp_domain";
    case Mark::kTensorModelParallel:
      return "tensor_model_parallel";
    case Mark::kAllreduce:
      return "allreduce";
  }
  return "";
}

std::string_view Name(Outcome outcome) { return kOutcomes[static_cast<size_t>(outcome)]; }

std::string_view Name(Mechanism mechanism) { return kMechanisms[static_cast<size_t>(mechanism)]; }

std::string Describe(const Edit& edit) { return std::visit(Describer(), edit.kind); }

}  // namespace sumonce

#include "trace/cures.h"

#include <vector>

#include "absl/strings/str_join.h"
#include "base/status.h"
#include "spmd/map.h"
#include "verify/judge.h"

namespace sumonce::trace {
namespace {

// The marks that Megatron's finalizer reads for the tp axis.
struct Marks {
  bool summed = false;    // sequence_parallel
  bool averaged = false;  // average_gradients_across_tp_domain: wins over the other
  bool operator==(const Marks&) const = default;
};

bool Has(const ParamInfo& param, Mark mark) {
  const auto found = param.marks.find(Name(mark));
  return found != param.marks.end() && found->second == "true";
}

State Finalized(const Marks& marks, const State& before, int op) {
  if (!marks.summed && !marks.averaged) return before;
  const Map map = marks.averaged ? Map::kAvg : Map::kSum;
  return sumonce::Apply({.map = map}, {.name = "tp", .atomic = {kAxis}}, before, op);
}

bool SameAs(const State& a, const State& b) {
  return a[kAxis].layout == b[kAxis].layout && a.scale == b.scale && !a.lost && !b.lost;
}

Edit MarkSet(const std::string& param, Mark mark, bool set) {
  return {.kind = MarkEdit{.param = param, .mark = mark, .set = set, .ranks = {}}, .location = {}};
}

std::vector<Edit> EditsBetween(const std::string& param, const Marks& had, const Marks& wanted) {
  std::vector<Edit> edits;
  if (had.averaged != wanted.averaged)
    edits.push_back(MarkSet(param, Mark::kAverageGradientsAcrossTpDomain, wanted.averaged));
  if (had.summed != wanted.summed)
    edits.push_back(MarkSet(param, Mark::kSequenceParallel, wanted.summed));
  return edits;
}

CureTrial Tried(std::vector<Edit> edits) {
  CureTrial trial;
  std::vector<std::string> texts;
  for (const Edit& edit : edits) texts.push_back(Describe(edit));
  trial.text = absl::StrJoin(texts, ", and ");
  trial.edits = std::move(edits);
  trial.tried = trial.right_in_proof = true;
  trial.result = "right, in the proof, for every tp";
  return trial;
}

}  // namespace

std::optional<CureTrial> ProposeCure(const Prover& prover, const TracedGradient& gradient,
                                     const ParamInfo& param) {
  const Value& before = gradient.before;
  if (!before.is_state() || before.lost() || gradient.after.lost()) return std::nullopt;
  const auto right = [&](const State& after) {
    return !after.lost &&
           Judge(gradient.target.state, before.state, after, Scale(), prover.mesh()).outcome ==
               Outcome::kRight;
  };
  const int op = -1;
  const Marks had = {.summed = Has(param, Mark::kSequenceParallel),
                     .averaged = Has(param, Mark::kAverageGradientsAcrossTpDomain)};
  // Other marks are a cure only where the marks that it has explain what was done.
  if (SameAs(Finalized(had, before.state, op), gradient.after.state)) {
    for (const Marks wanted : {Marks{true, false}, Marks{false, false}}) {
      if (wanted == had || !right(Finalized(wanted, before.state, op))) continue;
      return Tried(EditsBetween(gradient.param, had, wanted));
    }
    return std::nullopt;
  }
  const bool untouched = SameAs(before.state, gradient.after.state);
  if (!untouched || !right(Finalized({true, false}, before.state, op))) return std::nullopt;
  return Tried({Edit{.kind = AddRuleEdit{.param = gradient.param, .map = Map::kSum, .group = "tp"},
                     .location = {}}});
}

}  // namespace sumonce::trace

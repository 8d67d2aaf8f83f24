#include "trace/cures.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

CureTrial Tried(std::vector<Edit> edits, std::string text = "") {
  CureTrial trial;
  std::vector<std::string> texts;
  for (const Edit& edit : edits) texts.push_back(Describe(edit));
  trial.text = text.empty() ? absl::StrJoin(texts, ", and ") : std::move(text);
  trial.edits = std::move(edits);
  trial.tried = trial.right_in_proof = true;
  trial.result = "right, in the proof, for every tp";
  return trial;
}

constexpr char kPlacements[] = "placements";           // of a parameter that is a DTensor
constexpr char kGradPlacements[] = "grad_placements";  // of its gradient

std::string MarkText(const ParamInfo& param, const char* mark) {
  const auto found = param.marks.find(mark);
  return found == param.marks.end() ? "" : std::string(found->second);
}

// Whose marks the job's parameters carry.
enum class Framework { kMegatron, kDTensor, kNone };

Framework FrameworkOf(const Program& program) {
  Framework framework = Framework::kNone;
  for (const ParamInfo& param : program.params) {
    if (param.marks.contains(kPlacements)) return Framework::kDTensor;
    if (!param.marks.empty()) framework = Framework::kMegatron;
  }
  return framework;
}

// The module whose forward pass takes the parameter first: the one that uses it, wherever it is
// registered.
std::string UserOf(const Prover& prover, std::string_view param) {
  const Program& base = prover.traces().base();
  int storage = -1;
  for (const TensorInfo& tensor : base.tensors) {
    if (tensor.kind == TensorKind::kParam && tensor.name == param) storage = tensor.storage;
  }
  for (const Operation& operation : base.ops) {
    for (const Argument& argument : operation.args) {
      const bool tensor = argument.kind == Argument::Kind::kTensor;
      if (tensor && base.tensor(static_cast<int>(argument.integer)).storage == storage)
        return operation.module.empty() ? "the model" : std::string(operation.module);
    }
  }
  return "the model";
}

std::string OwnerOf(std::string_view param) {
  const size_t dot = param.rfind('.');
  return dot == std::string_view::npos ? "the model" : std::string(param.substr(0, dot));
}

// What to write in a job of DTensors, in PyTorch's words. `sums`: a sum is missing, else one is too
// much.
std::string DTensorText(const Prover& prover, const ParamInfo& param, bool sums) {
  const std::string name(param.name);
  const std::string placements = MarkText(param, kPlacements);
  const std::string of_grad = MarkText(param, kGradPlacements);
  const std::string user = UserOf(prover, name);
  if (!sums) {
    return absl::StrCat("declare the gradient of ", name, " complete where ", user,
                        " takes it local: to_local(grad_placements=[Replicate()])");
  }
  if (placements.empty()) {
    return absl::StrCat("make ", name, " a DTensor, Replicate(), whose gradient is reduced: give ",
                        OwnerOf(name), " a style in the plan of parallelize_module, such as ",
                        "SequenceParallel(), or dist.all_reduce its gradient");
  }
  if (absl::StrContains(ToAbsl(of_grad), "Partial")) {
    return absl::StrCat("redistribute the gradient of ", name, ", which is left ", of_grad,
                        ": grad.redistribute(placements=", placements, ") before the optimizer");
  }
  return absl::StrCat("declare the gradient of ", name, " a term of each rank where ", user,
                      " takes it local: to_local(grad_placements=[Partial()]), and redistribute ",
                      "it to ", placements);
}

Edit SumOver(const std::string& param) {
  return {.kind = AddRuleEdit{.param = param, .map = Map::kSum, .group = "tp"}, .location = {}};
}

// Marks of Megatron's finalizer, which explain what was done.
std::optional<CureTrial> OtherMarks(const std::string& param, const Marks& had, const State& before,
                                    const std::function<bool(const State&)>& right) {
  for (const Marks wanted : {Marks{true, false}, Marks{false, false}}) {
    if (wanted == had || !right(Finalized(wanted, before, -1))) continue;
    return Tried(EditsBetween(param, had, wanted));
  }
  return std::nullopt;
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
  const bool untouched = SameAs(before.state, gradient.after.state);
  const bool needs_sum = untouched && right(Finalized({true, false}, before.state, -1));
  const Framework framework = FrameworkOf(prover.traces().base());
  if (framework == Framework::kDTensor) {
    const bool summed_twice = !untouched && right(before.state);
    if (needs_sum) return Tried({SumOver(gradient.param)}, DTensorText(prover, param, true));
    if (summed_twice) return Tried({}, DTensorText(prover, param, false));
    return std::nullopt;
  }
  const Marks had = {.summed = Has(param, Mark::kSequenceParallel),
                     .averaged = Has(param, Mark::kAverageGradientsAcrossTpDomain)};
  const bool explained = SameAs(Finalized(had, before.state, -1), gradient.after.state);
  if (explained && framework == Framework::kMegatron)
    return OtherMarks(gradient.param, had, before.state, right);
  if (needs_sum) return Tried({SumOver(gradient.param)});
  return std::nullopt;
}

CureTrial CureOfMixedUse(const Prover& trial) {
  constexpr size_t kShown = 3;  // layers repeat
  std::vector<std::string> places;
  const std::vector<int>& summed = trial.summed_at();
  for (size_t i = 0; i < std::min(kShown, summed.size()); ++i)
    places.push_back(OperationName(trial.traces().base(), summed[i]));
  const std::string more =
      summed.size() > kShown ? absl::StrCat(", and ", summed.size() - kShown, " more") : "";
  return Tried({},
               absl::StrCat("all-reduce the gradient of the partial part over tp before it is ",
                            "joined, as copy_to_tensor_model_parallel_region does where the ",
                            "forward pass splits it off: at ", absl::StrJoin(places, ", "), more));
}

}  // namespace sumonce::trace

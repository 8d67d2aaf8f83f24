// The chain of operations behind a parameter's gradient.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
#include "trace/prove_traces.h"

namespace sumonce::trace {
namespace {

// Each operation's results, and what it read last.
struct History {
  struct Step {
    std::vector<int> operands;  // operations that made them
    std::string state;
  };
  std::vector<Step> steps;  // by operation
};

// Which operation last wrote to a storage.
class Writers {
 public:
  int Of(int storage) const {
    const auto found = writers_.find(storage);
    return found == writers_.end() ? -1 : found->second;
  }
  void Set(int storage, int op) { writers_[storage] = op; }

 private:
  absl::flat_hash_map<int, int> writers_;
};

void CollectTensors(const Argument& argument, std::vector<int>& ids) {
  if (argument.kind == Argument::Kind::kTensor) ids.push_back(static_cast<int>(argument.integer));
  for (const Argument& item : argument.items) CollectTensors(item, ids);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExplainTraces(const TraceSet& set,
                                                       const std::string& param) {
  std::vector<std::string> names;
  for (const ParamInfo& known : set.base().params) {
    if (known.trainable) names.emplace_back(known.name);
  }
  if (std::find(names.begin(), names.end(), param) == names.end()) {
    const std::string closest = Closest(param, names);
    return absl::NotFoundError(
        absl::StrCat("--explain: no trainable parameter named '", param, "'",
                     closest.empty() ? "" : absl::StrCat("; did you mean '", closest, "'?")));
  }
  if (!set.twice)
    return absl::NotFoundError("--explain: the trace at twice the size is needed too");
  SUMONCE_ASSIGN_OR_RETURN(const Alignment traces, Alignment::Of(set));
  Prover prover(traces, Declarations());
  const Program& base = traces.base();
  History history;
  Writers writers;
  history.steps.resize(base.ops.size());
  prover.observer = [&](int op, const std::vector<Prover::Made>& made) {
    std::vector<int> ids;
    for (const Argument& argument : base.ops[op].args) CollectTensors(argument, ids);
    History::Step& step = history.steps[op];
    for (const int id : ids) step.operands.push_back(writers.Of(base.tensor(id).storage));
    for (const Prover::Made& one : made) {
      if (step.state.empty()) step.state = prover.Describe(one.value);
      writers.Set(base.tensor(one.ref.id).storage, op);
    }
  };
  prover.Run();
  for (const TracedGradient& gradient : prover.gradients()) {
    if (gradient.param != param) continue;
    std::vector<std::string> lines = {absl::StrCat(
        "wanted ", prover.Describe(gradient.target), "; before the finalizer ",
        prover.Describe(gradient.before), ", after ", prover.Describe(gradient.after))};
    // From the last write back along the operand that was made last: the gradient's own path.
    int op = writers.Of(base.tensor(gradient.ref.id).storage);
    std::string state;
    while (op >= 0) {
      const History::Step& step = history.steps[op];
      if (step.state != state && !step.state.empty())
        lines.push_back(absl::StrCat(step.state, "  ", OperationName(base, op)));
      state = step.state;
      int next = -1;
      for (const int operand : step.operands) {
        if (operand < op) next = std::max(next, operand);
      }
      op = next;
    }
    return lines;
  }
  return absl::NotFoundError(
      absl::StrCat("--explain: '", param, "' has no gradient in the traces"));
}

}  // namespace sumonce::trace

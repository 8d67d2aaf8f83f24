// The chain of operations behind a parameter's gradient.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
#include "trace/prove_traces.h"

namespace sumonce::trace {
namespace {

struct Link {
  std::vector<int> operands;  // operations that made what this one reads
  std::string state;          // of its first result
};

// Which operation last wrote to a tensor's memory.
class Writers {
 public:
  int Of(const TensorInfo& tensor) const {
    const auto found = writes_.find(tensor.storage);
    if (found == writes_.end()) return -1;
    for (auto write = found->second.rbegin(); write != found->second.rend(); ++write) {
      if (OverlapOf(tensor.geometry, write->first).overlap != Overlap::kNone) return write->second;
    }
    return -1;
  }
  void Add(const TensorInfo& tensor, int op) {
    writes_[tensor.storage].emplace_back(tensor.geometry, op);
  }

 private:
  absl::flat_hash_map<int, std::vector<std::pair<Geometry, int>>> writes_;
};

void CollectTensors(const Argument& argument, std::vector<int>& ids) {
  if (argument.kind == Argument::Kind::kTensor) ids.push_back(static_cast<int>(argument.integer));
  for (const Argument& item : argument.items) CollectTensors(item, ids);
}

// Where each operation's operands come from, and its state. Of what overlaps `own`, the parameter's
// gradient, the gradient's.
class Ancestry {
 public:
  Ancestry(const Program& base, Prover& prover, const TensorInfo& own, const TensorRef& own_ref)
      : base_(base), prover_(prover), own_(own), own_ref_(own_ref), links_(base.ops.size()) {}

  void Record(int op, const std::vector<Prover::Made>& made) {
    Link& link = links_[op];
    std::vector<int> ids;
    for (const Argument& argument : base_.ops[op].args) CollectTensors(argument, ids);
    for (const int id : ids) link.operands.push_back(writers_.Of(base_.tensor(id)));
    for (const Prover::Made& one : made) {
      const TensorInfo& tensor = base_.tensor(one.ref.id);
      writers_.Add(tensor, op);
      const bool own = tensor.storage == own_.storage &&
                       OverlapOf(own_.geometry, tensor.geometry).overlap != Overlap::kNone;
      if (own || link.state.empty())
        link.state = prover_.Describe(own ? prover_.Read(own_ref_) : one.value);
    }
  }

  // From the last write back along the operand that was made last: of each run of equal states the
  // operation where it began, last first.
  std::vector<std::string> Path() const {
    std::vector<std::string> lines;
    std::string state;
    for (int op = writers_.Of(own_); op >= 0; op = Before(op)) {
      if (links_[op].state.empty()) continue;
      const std::string line = absl::StrCat(links_[op].state, "  ", OperationName(base_, op));
      if (links_[op].state == state) {
        lines.back() = line;
      } else {
        lines.push_back(line);
      }
      state = links_[op].state;
    }
    return lines;
  }

 private:
  int Before(int op) const {
    int before = -1;
    for (const int operand : links_[op].operands) {
      if (operand < op) before = std::max(before, operand);
    }
    return before;
  }

  const Program& base_;
  Prover& prover_;
  const TensorInfo& own_;
  const TensorRef& own_ref_;
  Writers writers_;
  std::vector<Link> links_;  // by operation
};

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
  for (const Alignment::Named& named : traces.named()) {
    if (named.kind != TensorKind::kGrad || named.name != param) continue;
    const Program& base = traces.base();
    Ancestry ancestry(base, prover, base.tensor(named.ref.id), named.ref);
    prover.observer = [&](int op, const auto& made) { ancestry.Record(op, made); };
    prover.Run();
    std::vector<std::string> lines = ancestry.Path();
    for (const TracedGradient& gradient : prover.gradients()) {
      if (gradient.param != param) continue;
      lines.insert(lines.begin(),
                   absl::StrCat("wanted ", prover.Describe(gradient.target),
                                "; before the finalizer ", prover.Describe(gradient.before),
                                ", after ", prover.Describe(gradient.after)));
    }
    return lines;
  }
  return absl::NotFoundError(
      absl::StrCat("--explain: '", param, "' has no gradient in the traces"));
}

}  // namespace sumonce::trace

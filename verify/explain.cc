#include "verify/explain.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "verify/forward_types.h"
#include "verify/judge.h"

namespace sumonce {
namespace {

// Where along `axis` another operand of the operation that reads `use` is cut, and by what.
std::string CutBeside(const ProofRun& proof, const Tape::Node& reader, int use, int atomic_axis) {
  for (int operand : reader.operands) {
    if (operand == use) continue;
    const State& state = proof.tape->value(operand);
    if (state.lost || state[atomic_axis].layout != Layout::kShard) continue;
    return absl::StrCat("meets there what ", proof.tape->CutBy(operand, atomic_axis), " cut along ",
                        ToAbsl(Name(state[atomic_axis].dim)));
  }
  return "meets nothing that is cut";
}

}  // namespace

std::vector<std::string> ExplainClass(const ProofRun& proof, const std::string& param) {
  std::vector<std::string> lines;
  const auto& nodes = proof.tape->nodes();
  const ForwardTypes types = InferForward(*proof.tape, proof.loss);
  for (size_t id = 0; id < nodes.size(); ++id) {
    if (nodes[id].kind != Tape::Kind::kUse || nodes[id].param->name != param) continue;
    if (!proof.tape->has_grad(static_cast<int>(id))) continue;
    const std::string reader = proof.tape->FirstReader(static_cast<int>(id));
    const State& grad = proof.tape->grad(static_cast<int>(id));
    for (Axis axis : {Axis::kTp}) {
      const Group group = proof.mesh->GroupOf(axis);
      if (group.atomic.empty() || grad.lost) continue;
      const GradClass grad_class = ClassOf(grad, proof.sound_scale, axis, *proof.mesh);
      for (const Tape::Node& node : nodes) {
        if (node.name != reader) continue;
        const ForwardType type = types.uses.at({static_cast<int>(id), group.atomic[0]});
        lines.push_back(absl::StrCat("used as ", ToAbsl(Name(type)), " at ", reader, ", ",
                                     CutBeside(proof, node, static_cast<int>(id), group.atomic[0]),
                                     ": class ", ToAbsl(Name(grad_class)), " over ", group.name));
      }
    }
  }
  return lines;
}

}  // namespace sumonce

#include "verify/explain.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
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

// The operation that reads `node` and sends a gradient back to it, the first of several; -1: none.
int ReaderOf(const AbstractTape& tape, int node) {
  for (const auto& [edge, state] : tape.edges()) {
    if (edge.second == node) return edge.first;
  }
  return -1;
}

// From the loss down to `use`.
std::vector<int> PathTo(const AbstractTape& tape, int use) {
  std::vector<int> path = {use};
  for (int reader = ReaderOf(tape, use); reader >= 0; reader = ReaderOf(tape, reader))
    path.push_back(reader);
  std::reverse(path.begin(), path.end());
  return path;
}

void AppendUse(const ProofRun& proof, int use, std::vector<std::string>& lines) {
  const AbstractTape& tape = *proof.tape;
  lines.push_back(absl::StrCat("used at ", tape.FirstReader(use)));
  std::string last, above;
  for (const int node : PathTo(tape, use)) {
    const std::string state = Describe(tape.grad(node), *proof.mesh);
    if (state != last)
      lines.push_back(
          absl::StrCat("  ", above.empty() ? "the loss" : above + " backward", ": ", state));
    last = state;
    above = tape.OperationName(node);
  }
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

absl::StatusOr<std::vector<std::string>> ExplainChain(const ProofRun& proof,
                                                      const std::string& param) {
  if (!proof.proofs.contains(param)) {
    std::vector<std::string> names;
    for (const auto& [name, known] : proof.proofs) names.push_back(name);
    const std::string closest = Closest(param, names);
    return absl::NotFoundError(absl::StrCat("no trained parameter '", Printable(param), "'",
                                            closest.empty() ? "" : "; did you mean '", closest,
                                            closest.empty() ? "" : "'?"));
  }
  std::vector<std::string> lines;
  if (!proof.refused.empty()) return std::vector<std::string>{proof.refused};
  for (size_t id = 0; id < proof.tape->nodes().size(); ++id) {
    const Tape::Node& node = proof.tape->nodes()[id];
    const bool used = node.kind == Tape::Kind::kUse && node.param->name == param &&
                      proof.tape->has_grad(static_cast<int>(id));
    if (used) AppendUse(proof, static_cast<int>(id), lines);
  }
  const auto before = proof.before.find(param);
  if (before == proof.before.end()) return lines;
  std::string last = Describe(before->second, *proof.mesh);
  lines.push_back("before the finalizer: " + last);
  for (const auto& [step, state] : proof.finalized.at(param)) {
    const std::string now = Describe(state, *proof.mesh);
    if (now != last) lines.push_back(absl::StrCat("finalizer ", step, ": ", now));
    last = now;
  }
  return lines;
}

}  // namespace sumonce

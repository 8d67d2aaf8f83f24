#include "verify/rounding_scale.h"

#include <algorithm>

#include "base/random.h"
#include "verify/tolerance.h"

namespace sumonce {
namespace {

// The largest term of what an operation sends to operand `i`: its gradient times the others.
double LargestTerm(const NumericTape& tape, int id, size_t i) {
  const Tape::Node& node = tape.nodes()[id];
  double term = MaxAbs(tape.grad(id));
  for (size_t j = 0; j < node.operands.size() && !node.declaration.addition; ++j) {
    if (j != i) term *= MaxAbs(tape.value(node.operands[j]));
  }
  return term;
}

}  // namespace

RoundingScale::RoundingScale(const NumericTape& reference, uint64_t seed)
    : rounded_(reference.nodes().size()) {
  for (int id = static_cast<int>(reference.nodes().size()) - 1; id >= 0; --id) {
    if (!reference.grad(id).empty()) PassOn(reference, id, seed);
  }
}

double RoundingScale::Of(int operation, int operand) const {
  const auto found = scales_.find({operation, operand});
  return found == scales_.end() ? 0.0 : found->second;
}

void RoundingScale::PassOn(const NumericTape& tape, int id, uint64_t seed) {
  const Tape::Node& node = tape.nodes()[id];
  if (rounded_[id].empty()) rounded_[id] = Tensor(tape.grad(id).dims());
  const bool sends = !node.operands.empty() && tape.edges().contains({id, node.operands[0]});
  switch (node.kind) {
    case Tape::Kind::kInput:
    case Tape::Kind::kUse:
      return;
    case Tape::Kind::kLocal:
      PassLocal(tape, id, seed);
      return;
    case Tape::Kind::kScale:
    case Tape::Kind::kCollective:
      if (!sends) return;
      Tensor rounded = rounded_[id].Clone();
      if (node.kind == Tape::Kind::kScale) ScaleInto(rounded, node.scale.Evaluate(tape.mesh()));
      Send(id, node.operands[0], std::move(rounded));
      return;
  }
}

void RoundingScale::PassLocal(const NumericTape& tape, int id, uint64_t seed) {
  const Tape::Node& node = tape.nodes()[id];
  std::vector<Tensor> in;
  std::vector<Tensor> rounded;
  for (int operand : node.operands) {
    in.push_back(tape.value(operand));
    const bool wanted = tape.nodes()[operand].needs_grad;
    rounded.push_back(wanted ? Tensor(tape.value(operand).dims()) : Tensor());
  }
  node.operation->Backward(in, tape.value(id), rounded_[id], rounded);
  for (size_t i = 0; i < in.size(); ++i) {
    if (rounded[i].empty()) continue;
    const double term = LargestTerm(tape, id, i);
    const RandomStream stream(seed, "rounding." + node.name + "." + std::to_string(i));
    for (int64_t k = 0; k < rounded[i].count(); ++k)
      rounded[i].data()[k] += term * (2 * stream.Uniform(k) - 1);
    Send(id, node.operands[i], std::move(rounded[i]));
  }
}

void RoundingScale::Send(int operation, int operand, Tensor rounded) {
  double& scale = scales_[{operation, operand}];
  scale = std::max(scale, MaxAbs(rounded));
  largest_ = std::max(largest_, scale);
  if (rounded_[operand].empty()) {
    rounded_[operand] = std::move(rounded);
  } else {
    AddInto(rounded_[operand], rounded);
  }
}

}  // namespace sumonce

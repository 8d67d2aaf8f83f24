#include "spmd/abstract_tape.h"

#include <algorithm>

#include "base/status.h"

namespace sumonce {

absl::Status AbstractTape::ForwardNode(int id, const Input* input) {
  values_.resize(nodes_.size());
  Node& node = nodes_[id];
  const int axes = static_cast<int>(mesh().atomic().size());
  switch (node.kind) {
    case Kind::kInput:
      values_[id] = input->shards.Target(mesh());
      node.dims = input->shards.whole();
      break;
    case Kind::kUse:
      values_[id] = node.param->shards.Target(mesh());
      node.dims = node.param->shards.whole();
      break;
    case Kind::kLocal: {
      const std::vector<OperandState> operands = OperandStates(node);
      values_[id] = LocalForward(node.declaration, operands, axes, id);
      break;
    }
    case Kind::kScale:
      values_[id] = Apply(node.scale, values_[node.operands[0]]);
      break;
    case Kind::kCollective:
      values_[id] =
          Apply(node.collective.forward, node.collective.group, values_[node.operands[0]], id);
      if (node.collective.forward_unknown && !values_[id].lost)
        values_[id].lost = {node.collective.forward_unknown, id};
      break;
  }
  return absl::OkStatus();
}

std::vector<OperandState> AbstractTape::OperandStates(const Node& node) const {
  std::vector<OperandState> operands;
  for (int operand : node.operands)
    operands.push_back({.dims = &nodes_[operand].dims, .value = &values_[operand]});
  return operands;
}

absl::Status AbstractTape::SeedNode(int id) {
  grads_.assign(nodes_.size(), State());
  has_grad_.assign(nodes_.size(), false);
  has_grad_[id] = true;  // the same number on every rank: E(1)
  return absl::OkStatus();
}

absl::Status AbstractTape::BackwardNode(int id) {
  if (!has_grad_[id]) return absl::OkStatus();
  const Node& node = nodes_[id];
  const int axes = static_cast<int>(mesh().atomic().size());
  switch (node.kind) {
    case Kind::kInput:
    case Kind::kUse:
      break;
    case Kind::kLocal: {
      const std::vector<OperandState> operands = OperandStates(node);
      for (size_t i = 0; i < operands.size(); ++i) {
        if (!nodes_[node.operands[i]].needs_grad) continue;
        Accumulate(node.operands[i],
                   LocalBackward(node.declaration, operands, values_[id], grads_[id], i, axes, id),
                   id);
      }
      break;
    }
    case Kind::kScale:
      Accumulate(node.operands[0], Apply(node.scale, grads_[id]), id);
      break;
    case Kind::kCollective: {
      const State grad = BackwardCollective(node, id);
      if (!node.collective.vanishes || !AddedUp(grad, node.collective.group))
        Accumulate(node.operands[0], grad, id);
      break;
    }
  }
  return absl::OkStatus();
}

// Every rank of the group has the sum of what its ranks had.
bool AbstractTape::AddedUp(const State& state, const Group& group) {
  return state.ok() && std::all_of(group.atomic.begin(), group.atomic.end(),
                                   [&](int a) { return state[a].layout == Layout::kEqual; });
}

State AbstractTape::BackwardCollective(const Node& node, int id) const {
  State grad = Apply(node.collective.backward, node.collective.group, grads_[id], id);
  // A value that lost its state has no reference to be the gradient of.
  if (values_[id].lost && !grad.lost) grad.lost = values_[id].lost;
  if (node.collective.backward_unknown && !grad.lost)
    grad.lost = {node.collective.backward_unknown, id};
  return grad;
}

void AbstractTape::Accumulate(int id, const State& grad, int operation) {
  edges_[{operation, id}] = grad;
  grads_[id] = has_grad_[id] ? Join(grads_[id], grad, operation) : grad;
  has_grad_[id] = true;
}

std::string AbstractTape::CutBy(int node, int atomic_axis) const {
  if (values_[node].lost || values_[node][atomic_axis].layout != Layout::kShard) return "";
  // Walk back through what kept the cut to what made it.
  for (;;) {
    const Node& current = nodes_[node];
    int earlier = -1;
    for (int operand : current.operands) {
      const State& state = values_[operand];
      if (state[atomic_axis].layout == Layout::kShard &&
          state[atomic_axis].dim == values_[node][atomic_axis].dim) {
        earlier = operand;
        break;
      }
    }
    if (earlier < 0) return current.name;
    node = earlier;
  }
}

std::string AbstractTape::FirstReader(int node) const {
  for (const Node& reader : nodes_) {
    for (int operand : reader.operands) {
      if (operand == node) return reader.name;
    }
  }
  return "";
}

}  // namespace sumonce

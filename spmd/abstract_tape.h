// The tape that carries states: one run is the proof for every size of every axis that is larger
// than 1 (docs/THEORY.md). Axes of size 1 are erased: everything is Equal along them.
#pragma once

#include "spmd/local_rules.h"
#include "spmd/tape.h"

namespace sumonce {

class AbstractTape : public Tape {
 public:
  explicit AbstractTape(const Mesh& mesh) : Tape(mesh) {}

  const State& value(int node) const { return values_[node]; }
  // The gradient's state; no entry (false) where none arrived.
  bool has_grad(int node) const { return has_grad_[node]; }
  const State& grad(int node) const { return grads_[node]; }
  // What each operation sends back to each operand, (operation, operand) -> state.
  const std::map<std::pair<int, int>, State>& edges() const { return edges_; }
  // What a fault's operation index means: the name of that operation.
  std::string OperationName(int node) const { return node < 0 ? "" : nodes_[node].name; }
  // The communication (or input) that cut `node`'s value along the atomic axis: "" if it is not a
  // shard.
  std::string CutBy(int node, int atomic_axis) const;
  // The first operation that reads `node`, "" if none does.
  std::string FirstReader(int node) const;

 protected:
  absl::Status ForwardNode(int id, const Input* input) override;
  absl::Status SeedNode(int id) override;
  absl::Status BackwardNode(int id) override;

 private:
  std::vector<OperandState> OperandStates(const Node& node) const;
  static bool AddedUp(const State& state, const Group& group);
  State BackwardCollective(const Node& node, int id) const;
  void Accumulate(int id, const State& grad, int operation);

  std::vector<State> values_;
  std::vector<State> grads_;
  std::vector<bool> has_grad_;
  std::map<std::pair<int, int>, State> edges_;
};

}  // namespace sumonce

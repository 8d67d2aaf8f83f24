// The tape of one rank that computes.
#pragma once

#include <map>

#include "comm/communicator.h"
#include "spmd/tape.h"

namespace sumonce {

// The communicators of one rank, one per group that its collectives name. Groups of one rank need
// none.
class GroupComms {
 public:
  // Collective over `world`: splits it for each group, in this order.
  static absl::StatusOr<GroupComms> Create(Communicator& world, const Mesh& mesh,
                                           const std::vector<Group>& groups);
  // NotFound for a group that was not made. `size` 1 groups return null.
  absl::StatusOr<Communicator*> Find(const Group& group) const;

 private:
  std::map<std::string, std::unique_ptr<Communicator>> comms_;
};

// Runs `args` on a rank's array: the numeric twin of Apply. `dims` of the result follow from the
// map. Used by the tape in both directions and by the finalizer.
absl::StatusOr<Tensor> RunMap(const MapArgs& args, const Group& group, const Mesh& mesh, int rank,
                              Communicator* comm, const Tensor& x, std::string_view label);

class NumericTape : public Tape {
 public:
  // `rank` in the world; `comms` may be null on a mesh of size 1 (the unsharded reference).
  NumericTape(const Mesh& mesh, int rank, const GroupComms* comms)
      : Tape(mesh), rank_(rank), comms_(comms) {}

  const Tensor& value(Value x) const { return values_[x.id]; }
  const Tensor& value(int node) const { return values_[node]; }
  // After Backward; empty where none arrived.
  const Tensor& grad(int node) const { return grads_[node]; }
  int rank() const { return rank_; }
  // Keeps the gradients of all nodes (else only those of uses), and what each operation sent to
  // each operand: for the localisation of an upstream fault, where a sum of several uses would hide
  // the culprit.
  void KeepGradients() { keep_gradients_ = true; }
  const std::map<std::pair<int, int>, Tensor>& edges() const {
    return edges_;
  }  // (operation, operand) -> gradient

 protected:
  absl::Status ForwardNode(int id, const Input* input) override;
  absl::Status SeedNode(int id) override;
  absl::Status BackwardNode(int id) override;

 private:
  absl::Status BackwardLocal(int id);
  Tensor ValueOf(const Input& input, const std::string& name) const;
  absl::StatusOr<Tensor> Communicated(const Node& node, const MapArgs& args, const Tensor& x,
                                      std::string_view direction);
  // Adds what the operation `from` sends back to the gradient of `operand`; refuses another shape
  // by name.
  absl::Status Accumulate(int operand, int from, Tensor grad);

  int rank_;
  const GroupComms* comms_;
  bool keep_gradients_ = false;
  std::vector<Tensor> values_;
  std::vector<Tensor> grads_;
  std::map<std::pair<int, int>, Tensor> edges_;
};

}  // namespace sumonce

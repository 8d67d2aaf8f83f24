// The third way to run layer code (spmd/tape.h): neither numbers nor states, but the record of what
// one rank would run. Forward and backward become aten and c10d operations of a Graph; no rank
// waits for another.
#pragma once

#include <map>

#include "spmd/tape.h"
#include "trace/record/graph.h"

namespace sumonce::trace::record {

// The tensors that outlive a microbatch, by parameter name.
struct RecordedParam {
  int weight = -1;
  int grad = -1;  // of what is trained
};

class RecordingTape : public Tape {
 public:
  // All outlive the tape. `suffix` tells this microbatch's inputs from others'.
  RecordingTape(const Mesh& mesh, int rank, Graph& graph,
                const std::map<std::string, RecordedParam>& params, std::string suffix)
      : Tape(mesh), rank_(rank), graph_(graph), params_(params), suffix_(std::move(suffix)) {}

  // What a gradient of a use goes through on its way into the parameter's buffer: tensor to tensor.
  std::function<int(const Param& param, int grad)> on_term;

 protected:
  absl::Status ForwardNode(int id, const Input* input) override;
  absl::Status SeedNode(int id) override;
  absl::Status BackwardNode(int id) override;

 private:
  void EnterModule(const Node& node);
  absl::Status ForwardInput(int id, const Input& input);
  absl::StatusOr<int> Communicated(const Group& group, const MapArgs& args, int x,
                                   const Dims& dims);
  int Gathered(const Group& group, int dim, int x);
  int Scattered(const Group& group, int dim, int x);
  int Reduced(const Group& group, std::string_view how, int x);
  std::vector<int> DimToFront(int x, int dim) const;

  int rank_;
  Graph& graph_;
  const std::map<std::string, RecordedParam>& params_;
  std::string suffix_;
  std::vector<int> tensors_;                // of nodes
  std::vector<std::pair<int, int>> marks_;  // of local nodes: their operations in the graph
};

// out = x summed (or "AVG", "MAX") over the ranks, in place.
void AppendAllReduce(Graph& graph, const std::vector<int>& ranks, std::string_view how, int x);

}  // namespace sumonce::trace::record

// Runs a layer, or a whole model, on every rank of a small mesh and once on the prover, for the
// tests beside the layers.
//
//   const LayerCase row = {.build = ..., .x = x, .up = up, .x_cuts = {{Dim::kIn, Axis::kTp}}};
//   const Outcome two = RunLayer(row, {.tp = 2}, /*sequence_parallel=*/true);
//   EXPECT_TRUE(AllClose(two.Whole("linear.lora_B"), ...));
//
// A layer's loss is sum(up * y), so the gradients are those of golden files.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "layers/module.h"
#include "spmd/abstract_tape.h"
#include "spmd/numeric_tape.h"
#include "tests/golden.h"

namespace sumonce::testing {

using Weights = std::map<std::string, Tensor>;  // whole, by parameter name
using EditFn = std::function<void(const std::string& name, Collective& collective)>;

// One rank's modules and its step, which returns the loss.
struct Program {
  std::shared_ptr<void> owner;
  ParamStore* params = nullptr;
  std::function<Value(Tape& tape)> step;
};
using ProgramFn = std::function<Program(bool sequence_parallel)>;

// A layer between a trainable input, the parameter "x", and the constant upstream gradient.
struct LayerCase {
  // Builds one rank's layer; the function that comes back keeps it alive.
  std::function<std::function<Value(Tape& tape, Value x)>(const Builder& builder)> build;
  LayerConfig config;  // sequence_parallel is set by the run
  Weights weights;     // parameters without an entry get random numbers
  Tensor x, up;        // whole
  // How tp cuts x and y; besides that sequence parallelism cuts them over s, unless told otherwise.
  std::vector<ShardMap::Cut> x_cuts = {}, y_cuts = {};
  bool x_over_sequence = true, y_over_sequence = true;
  Pass pass = {};
};

struct RankTensors {
  std::map<std::string, Tensor> values, grads;  // by operation name
  std::map<std::string, Tensor> param_grads;    // by parameter name
  std::map<std::string, Tensor> params;         // the rank's own weights, x among them
  std::map<std::string, Marks> marks;           // after backward
  Tensor y;                                     // first operand of the last operation: a layer's y
  Tensor loss;
};

struct Outcome {
  std::shared_ptr<const Mesh> mesh;
  absl::Status status;  // the first failure of any rank
  std::vector<RankTensors> ranks;
  std::map<std::string, State> states;  // gradients of parameters, as proved
  State y_state;

  // The unsharded tensor that the ranks' gradients denote under the proved state: terms summed,
  // slices joined, copies checked to be equal. Empty, with a failed expectation, if there is none.
  Tensor Whole(const std::string& param) const;
  Tensor WholeY() const;
  std::string StateText(const std::string& param) const;  // "tp: P(s)"
};

ProgramFn LayerProgram(const LayerCase& setup);
Outcome RunProgram(const ProgramFn& program, const Weights& weights, const MeshSizes& sizes = {},
                   bool sequence_parallel = false, const EditFn& edit = nullptr);
Outcome RunLayer(const LayerCase& setup, const MeshSizes& sizes = {},
                 bool sequence_parallel = false, const EditFn& edit = nullptr);

// Every gradient, and y, on `sizes` denotes what one rank computes, to 1e-12; over tp exactly the
// parameters that match a glob of `partial` hold terms, the others copies or their slices.
void ExpectReproducesUnsharded(const ProgramFn& program, const Weights& weights,
                               const MeshSizes& sizes, bool sequence_parallel,
                               const std::vector<std::string>& partial);
// The same at tp 2 and 4.
void ExpectReproducesUnsharded(const LayerCase& setup, bool sequence_parallel,
                               const std::vector<std::string>& partial);

// Numbers of N(0, 0.3^2) from the name.
Tensor Random(const std::string& name, const Dims& dims);

// No rank talks to another: what each holds before any communication.
void DropCommunication(const std::string& name, Collective& collective);

}  // namespace sumonce::testing

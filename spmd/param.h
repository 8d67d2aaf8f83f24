// A parameter as a rank holds it: its share of the weight, its gradient, and the marks that real
// finalizers read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "spmd/dim.h"
#include "spmd/state.h"
#include "spmd/tensor.h"

namespace sumonce {

// How a parameter is cut over the mesh, and the one object that slices, assembles and numbers its
// elements.
class ShardMap {
 public:
  struct Cut {
    Dim dim;
    Axis axis;
  };
  ShardMap() = default;
  // `whole`: the unsharded dimensions. At most one cut per axis; the first cut of a dimension is
  // the slowest.
  ShardMap(Dims whole, std::vector<Cut> cuts) : whole_(std::move(whole)), cuts_(std::move(cuts)) {}

  const Dims& whole() const { return whole_; }
  const std::vector<Cut>& cuts() const { return cuts_; }
  bool CutBy(Axis axis) const;
  // Whether some ranks of a tensor-parallel group hold different slices, and whether some hold the
  // same: both where a model has fewer key-value groups than ranks.
  bool CutOverTp() const { return CutBy(Axis::kTp) || CutBy(Axis::kKv) || CutBy(Axis::kKvCopy); }
  bool CopiedOverTp() const {
    return !CutBy(Axis::kTp) && !(CutBy(Axis::kKv) && CutBy(Axis::kKvCopy));
  }

  // InvalidArgument when an axis does not divide the units that it cuts: names dimension, units,
  // axis and size.
  absl::Status CheckDivides(const Mesh& mesh) const;
  Dims Local(const Mesh& mesh) const;  // a rank's dimensions
  Tensor Slice(const Tensor& whole, const Mesh& mesh, int rank) const;
  // For each local element, in order, its index in the whole: random numbers, resharding.
  std::vector<int64_t> GlobalIndices(const Mesh& mesh, int rank) const;
  // What "summed exactly once" means here: S on each cut's axes, E elsewhere, scale 1.
  State Target(const Mesh& mesh) const;

 private:
  Dims whole_;
  std::vector<Cut> cuts_;
};

// Names and meaning as in Megatron-Core (spec: docs/THEORY.md "Marks"). Read by the finalizer when
// it runs, so mutable at any time, and per rank.
struct Marks {
  bool sequence_parallel = false;
  bool average_gradients_across_tp_domain = false;
  bool tensor_model_parallel = false;
  int partition_dim = -1;
  bool allreduce = true;
  bool shared = false;
  bool operator==(const Marks&) const = default;
};

struct Init {
  enum class Kind : uint8_t { kNormal, kUniform, kZero, kOne, kLogUniform } kind = Kind::kNormal;
  double scale = 1.0;  // kNormal: standard deviation; kUniform: half width; kLogUniform: log of
                       // uniform(scale, limit)
  double limit = 1.0;
  double shift = 0.0;  // added
};

struct Param {
  std::string name;  // checkpoint name: "decoder.layers.0.self_attention.linear_proj.lora_B"
  ShardMap shards;
  Init init;
  Marks marks;
  bool requires_grad = true;
  bool replicated_lora =
      false;  // the replicated factor of a LoRA pair: what the founding cure marks

  // On a rank that computes; empty on the abstract tape.
  Tensor weight;
  Tensor main_grad;
};

}  // namespace sumonce

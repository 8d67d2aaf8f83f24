// AdamW with decoupled weight decay (Loshchilov and Hutter 2019; torch.optim.AdamW): eps outside
// the root and after bias correction, decay on the old value, none on one-dimensional parameters
// (Megatron-Core's default). In mixed precision it steps main weights that it keeps, and a
// parameter's weight is what they round to; sums are float64, and what is kept is rounded
// (sim/precision.h).
#pragma once

#include <deque>
#include <map>
#include <string>

#include "sim/scenario.h"
#include "spmd/param.h"

namespace sumonce {

class AdamW {
 public:
  struct Moments {
    Tensor first;
    Tensor second;
  };

  explicit AdamW(const OptimizerConfig& config, const PrecisionConfig& precision = {})
      : config_(config), precision_(precision) {}

  // Before the first step: main weights become the weights, and those are rounded. Nothing in
  // float64.
  void Start(std::deque<Param>& params);

  // One step over all parameters that have a gradient. The weights get new elements: recorded ones
  // stay as they were.
  void Step(std::deque<Param>& params);

  // Of every parameter that a step has changed, by name: running means of its gradient and of the
  // gradient's squares, not corrected for their start at zero.
  const std::map<std::string, Moments>& moments() const { return moments_; }
  // What a parameter's weight is rounded from; the weight itself in float64.
  const Tensor& main_weight(const Param& param) const;

 private:
  void Update(Param& param, Moments& moments);
  void Keep(Param& param, Tensor weight);

  OptimizerConfig config_;
  PrecisionConfig precision_;
  int steps_ = 0;
  std::map<std::string, Moments> moments_;
  std::map<std::string, Tensor> main_weights_;  // in mixed precision
};

}  // namespace sumonce

// AdamW with decoupled weight decay (Loshchilov and Hutter 2019; torch.optim.AdamW): eps outside
// the root and after bias correction, decay on the old value, none on one-dimensional parameters
// (Megatron-Core's default).
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

  explicit AdamW(const OptimizerConfig& config) : config_(config) {}

  // One step over all parameters that have a gradient. The weights get new elements: recorded ones
  // stay as they were.
  void Step(std::deque<Param>& params);

  // Of every parameter that a step has changed, by name: running means of its gradient and of the
  // gradient's squares, not corrected for their start at zero.
  const std::map<std::string, Moments>& moments() const { return moments_; }

 private:
  void Update(Param& param, Moments& moments) const;

  OptimizerConfig config_;
  int steps_ = 0;
  std::map<std::string, Moments> moments_;
};

}  // namespace sumonce

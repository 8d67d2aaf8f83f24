// The MLP of a block: y = fc2(act(fc1(norm(x)))), formulas in spec/gdn-lora-math.md section 6.
#pragma once

#include "layers/linear/parallel_linear.h"
#include "layers/module.h"

namespace sumonce {

enum class MlpActivation : uint8_t {
  kSwiglu,  // silu(gate) * up, fc1 packed [gate; up] on each rank
  kLinear,  // none: for the exact mode, whose integers a nonlinear function would leave
  kGelu,
  kGeluTanh,
  kSquaredRelu,
};

struct MlpConfig {
  int64_t hidden = 16;
  int64_t ffn = 24;
  MlpActivation activation = MlpActivation::kSwiglu;
  bool bias = false;       // of both linears
  bool layer_norm = true;  // RMSNorm fused in front of linear_fc1
};

// The two linears and what is between them: linear_fc1 (column, cut by f) and linear_fc2 (row).
class MlpLinears {
 public:
  // `communicates`: as LinearConfig's.
  MlpLinears(const Builder& builder, const MlpConfig& config, bool communicates);
  Value Forward(Tape& tape, Value x);
  void CollectModules(std::vector<ToggleableModule>& modules);

 private:
  MlpActivation activation_;
  ColumnParallelLinear linear_fc1_;
  RowParallelLinear linear_fc2_;
};

// A block's MLP.
class Mlp {
 public:
  Mlp(const Builder& builder, const MlpConfig& config);
  Value Forward(Tape& tape, Value x);  // [s(/tp), b, h] -> as x
  void CollectModules(std::vector<ToggleableModule>& modules) { linears_.CollectModules(modules); }

 private:
  std::string name_;
  MlpLinears linears_;
};

}  // namespace sumonce

// Mixed precision as Megatron-Core trains with --bf16: what a step stores is rounded, and what a
// layer computes is float64 all the same. Model weights and their gradients are bf16; main_grad,
// in which microbatches add up and which is reduced, is float32 with grad_reduce_in_fp32
// (--accumulate-allreduce-grads-in-fp32), else bf16; the optimizer keeps float32 main weights and
// moments, and model weights are its main weights rounded (core/optimizer/optimizer.py,
// Float16OptimizerWithFloat16Params).
#pragma once

#include "base/dtype.h"
#include "spmd/tensor.h"

namespace sumonce {

struct PrecisionConfig {
  bool bf16 = false;  // else float64 throughout
  bool grad_reduce_in_fp32 = false;

  DType weight_dtype() const { return bf16 ? DType::kBFloat16 : DType::kFloat64; }
  DType main_weight_dtype() const { return bf16 ? DType::kFloat32 : DType::kFloat64; }
  DType grad_dtype() const { return bf16 ? DType::kBFloat16 : DType::kFloat64; }  // of param.grad
  DType main_grad_dtype() const {
    return bf16 && grad_reduce_in_fp32 ? DType::kFloat32 : grad_dtype();
  }
};

// To the nearest number of a type, ties to even; bf16 through float32, as PyTorch converts.
// float64, float32 and bf16 only.
double RoundedTo(DType dtype, double value);
void RoundInto(DType dtype, Tensor& tensor);

}  // namespace sumonce

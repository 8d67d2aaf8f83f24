// y_i = f(x_i), f not linear: every dimension is free.
#pragma once

#include <string_view>

#include "spmd/operation.h"
#include "spmd/ops/shape.h"

namespace sumonce {

class ElementwiseOperation : public Operation {
 public:
  using Function = double (*)(double x);
  using Derivative = double (*)(double x, double y);  // dy/dx where y = f(x)

  // `name` outlives the operation.
  ElementwiseOperation(std::string_view name, Function function, Derivative derivative)
      : name_(name), function_(function), derivative_(derivative) {}

  std::string_view name() const override { return name_; }

  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override {
    SUMONCE_CHECK(operands.size() == 1);
    return Declaration{.result = operands[0]};
  }

  void Forward(std::span<const Tensor> in, Tensor& out) const override {
    for (int64_t i = 0; i < out.count(); ++i) out.data()[i] = function_(in[0].data()[i]);
  }

  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override {
    if (grad_in[0].empty()) return;
    for (int64_t i = 0; i < out.count(); ++i) {
      grad_in[0].data()[i] += grad_out.data()[i] * derivative_(in[0].data()[i], out.data()[i]);
    }
  }

 private:
  std::string_view name_;
  Function function_;
  Derivative derivative_;
};

}  // namespace sumonce

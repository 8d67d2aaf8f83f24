#include "sim/precision.h"

#include "base/status.h"

namespace sumonce {

double RoundedTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kFloat64:
      return value;
    case DType::kFloat32:
      return static_cast<float>(value);
    case DType::kBFloat16:
      return BFloat16::FromFloat(static_cast<float>(value)).ToFloat();
    default:
      SUMONCE_CHECK(false) << "no rounding to " << Name(dtype);
      return value;
  }
}

void RoundInto(DType dtype, Tensor& tensor) {
  if (dtype == DType::kFloat64) return;
  for (int64_t i = 0; i < tensor.count(); ++i)
    tensor.data()[i] = RoundedTo(dtype, tensor.data()[i]);
}

}  // namespace sumonce

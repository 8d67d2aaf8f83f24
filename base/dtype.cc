#include "base/dtype.h"

#include "base/status.h"

namespace sumonce {
namespace {

struct Properties {
  std::string_view name;
  int64_t bytes;
};

Properties PropertiesOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return {"float64", 8};
    case DType::kFloat32:
      return {"float32", 4};
    case DType::kBFloat16:
      return {"bfloat16", 2};
    case DType::kFloat16:
      return {"float16", 2};
    case DType::kInt64:
      return {"int64", 8};
    case DType::kInt32:
      return {"int32", 4};
    case DType::kUint8:
      return {"uint8", 1};
  }
  SUMONCE_CHECK(false) << "dtype " << static_cast<int>(dtype);
  return {};
}

}  // namespace

int64_t SizeOf(DType dtype) { return PropertiesOf(dtype).bytes; }

std::string_view Name(DType dtype) { return PropertiesOf(dtype).name; }

}  // namespace sumonce

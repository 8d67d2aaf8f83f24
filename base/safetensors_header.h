// Internal to base/safetensors*: the JSON header, parsed as a stream so that duplicate keys are
// seen and nesting cannot use up the stack.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/safetensors.h"

namespace sumonce::internal {

inline constexpr std::string_view kMetadataKey = "__metadata__";

struct SafetensorsHeader {
  std::map<std::string, TensorInfo> tensors;  // each of the size that its dtype and shape ask for
  std::map<std::string, std::string> metadata;
};

// InvalidArgument says what is wrong with which tensor, without the file's name. Where the tensors
// lie among each other and in the file is not looked at.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json);

// The container's name of a dtype ("F32"), and back: null if unknown.
std::string_view SafetensorsName(DType dtype);
const DType* DTypeOfSafetensorsName(std::string_view name);

// A name for messages: quoted, unprintable characters escaped, overlong ones cut.
std::string Quoted(std::string_view name);

// "[2, 3]"
std::string ShapeText(const std::vector<int64_t>& shape);

// Bytes of a tensor, or an InvalidArgument if an extent is negative or the product overflows.
absl::StatusOr<int64_t> BytesOf(DType dtype, const std::vector<int64_t>& shape);

}  // namespace sumonce::internal

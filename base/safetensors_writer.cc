#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/safetensors_header.h"
#include "base/status.h"

namespace sumonce {
namespace {

using Entry = std::pair<const std::string, TensorToWrite>;

absl::Status CheckTensor(const std::string& name, const TensorToWrite& tensor) {
  const std::string place = absl::StrCat("tensor ", internal::Quoted(name), ": ");
  if (name == internal::kMetadataKey) {
    return absl::InvalidArgumentError(absl::StrCat(place, "this name is the container's own"));
  }
  if (tensor.dtype != DType::kFloat64 && tensor.dtype != DType::kFloat32 &&
      tensor.dtype != DType::kBFloat16) {
    return absl::InvalidArgumentError(absl::StrCat(place, ToAbsl(Name(tensor.dtype)),
                                                   " cannot be written, expected float64, float32 "
                                                   "or bfloat16"));
  }
  const absl::StatusOr<int64_t> bytes = internal::BytesOf(tensor.dtype, tensor.shape);
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(place, bytes.status().message()));
  }
  const int64_t count = *bytes / SizeOf(tensor.dtype);
  if (static_cast<int64_t>(tensor.values.size()) == count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(place, "shape ", internal::ShapeText(tensor.shape),
                                                 " has ", count, " elements, but ",
                                                 tensor.values.size(), " values were given"));
}

// Wide elements first, so that each tensor is aligned to its element size (PyTorch's reader asks
// for that).
std::vector<const Entry*> FileOrder(const std::map<std::string, TensorToWrite>& tensors) {
  std::vector<const Entry*> order;
  for (const Entry& entry : tensors) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return SizeOf(a->second.dtype) > SizeOf(b->second.dtype);
  });
  return order;
}

// The header with its length, padded so that the data begins at a multiple of 8.
absl::StatusOr<std::string> Header(const std::vector<const Entry*>& order,
                                   const std::map<std::string, std::string>& metadata) {
  nlohmann::json json = nlohmann::json::object();
  if (!metadata.empty()) json[std::string(internal::kMetadataKey)] = metadata;
  int64_t offset = 0;
  for (const Entry* entry : order) {
    const auto& [name, tensor] = *entry;
    const int64_t end = offset + static_cast<int64_t>(tensor.values.size()) * SizeOf(tensor.dtype);
    json[name] = {{"dtype", internal::SafetensorsName(tensor.dtype)},
                  {"shape", tensor.shape},
                  {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::type_error&) {
    return absl::InvalidArgumentError("a name or a metadata text is not UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

template <typename Stored, typename Convert>
void AppendAs(const std::vector<double>& values, Convert convert, std::ostream& out) {
  for (const double value : values) {
    const Stored stored = convert(value);
    out.write(reinterpret_cast<const char*>(&stored), sizeof(stored));
  }
}

void AppendData(const TensorToWrite& tensor, std::ostream& out) {
  const auto to_float = [](double value) { return static_cast<float>(value); };
  if (tensor.dtype == DType::kFloat64) {
    AppendAs<double>(
        tensor.values, [](double value) { return value; }, out);
  } else if (tensor.dtype == DType::kFloat32) {
    AppendAs<float>(tensor.values, to_float, out);
  } else {
    AppendAs<BFloat16>(
        tensor.values, [&](double value) { return BFloat16::FromFloat(to_float(value)); }, out);
  }
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path,
                              const std::map<std::string, TensorToWrite>& tensors,
                              const std::map<std::string, std::string>& metadata, bool overwrite) {
  namespace fs = std::filesystem;
  for (const auto& [name, tensor] : tensors) {
    if (const absl::Status status = CheckTensor(name, tensor); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
    }
  }
  const std::vector<const Entry*> order = FileOrder(tensors);
  const absl::StatusOr<std::string> header = Header(order, metadata);
  if (!header.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", header.status().message()));
  }
  std::error_code error;
  if (!overwrite && fs::exists(fs::symlink_status(path, error))) {
    return absl::AlreadyExistsError(absl::StrCat(path, ": exists already"));
  }

  const std::string temporary = absl::StrCat(path, ".", getpid(), ".partial");
  errno = 0;
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << *header;
  for (const Entry* entry : order) AppendData(entry->second, file);
  file.close();
  if (!file) {
    error.assign(errno != 0 ? errno : EIO, std::generic_category());
  } else {
    fs::rename(temporary, path, error);
  }
  if (!error) return absl::OkStatus();
  std::error_code ignored;
  fs::remove(temporary, ignored);
  return absl::ErrnoToStatus(error.value(), absl::StrCat(path, ": cannot be written"));
}

}  // namespace sumonce

#include "base/safetensors.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/safetensors_header.h"
#include "base/status.h"
#include "base/text.h"

namespace sumonce {
namespace {

static_assert(std::endian::native == std::endian::little, "the container is little-endian");

constexpr int64_t kPrefixBytes = 8;             // the header's length
constexpr int64_t kMaxHeaderBytes = 100000000;  // as in the reference implementation

template <typename... Parts>
absl::Status Invalid(const std::string& path, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", parts...));
}

absl::Status CannotRead(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be read"));
}

// A FIFO or a device could block or never end, so only a regular file is one.
absl::StatusOr<int64_t> FileBytes(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  if (fs::is_directory(status)) return Invalid(path, "is a directory, expected a safetensors file");
  if (!error && !fs::is_regular_file(status)) return Invalid(path, "is not a regular file");
  const uintmax_t bytes = error ? 0 : fs::file_size(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(path, ": cannot be read"));
  return static_cast<int64_t>(bytes);
}

bool ReadBytes(std::ifstream& file, void* data, int64_t bytes) {
  file.read(static_cast<char*>(data), bytes);
  return file.gcount() == bytes;
}

// The JSON text. Nothing is allocated before the length was held against the file's.
absl::StatusOr<std::string> ReadHeaderText(const std::string& path, std::ifstream& file,
                                           int64_t file_bytes) {
  uint64_t length = 0;
  if (file_bytes < kPrefixBytes || !ReadBytes(file, &length, kPrefixBytes)) {
    return Invalid(path, "has ", file_bytes, " bytes; a safetensors file has at least 8");
  }
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    return Invalid(path, "header length ", length, " is beyond the limit of ", kMaxHeaderBytes,
                   " bytes; is this a safetensors file?");
  }
  if (length > static_cast<uint64_t>(file_bytes - kPrefixBytes)) {
    return Invalid(path, "header length ", length, ", but only ", file_bytes - kPrefixBytes,
                   " bytes follow: truncated");
  }
  std::string text(length, '\0');
  if (!ReadBytes(file, text.data(), static_cast<int64_t>(length))) return CannotRead(path);
  if (text.empty() || text[0] != '{') return Invalid(path, "the header does not begin with '{'");
  return text;
}

// The tensors must lie one behind the other, from the first byte of the data to the last.
absl::Status CheckCoverage(const std::string& path,
                           const std::map<std::string, TensorInfo>& tensors, int64_t data_bytes) {
  using Entry = std::pair<const std::string, TensorInfo>;
  std::vector<const Entry*> order;
  for (const Entry& entry : tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  int64_t covered = 0;
  for (const Entry* entry : order) {
    const auto& [name, info] = *entry;
    if (info.begin != covered) {
      return Invalid(
          path, "tensor ", internal::Quoted(name), " begins at byte ", info.begin,
          " of the data, expected ", covered,
          info.begin < covered ? ": it overlaps another" : ": there is a hole before it");
    }
    covered = info.end;
  }
  if (covered == data_bytes) return absl::OkStatus();
  return Invalid(path, "holds ", data_bytes, " bytes of data, the tensors have ", covered,
                 data_bytes < covered ? ": truncated" : ": bytes that belong to no tensor");
}

template <typename T>
double Widen(T value) {
  return static_cast<double>(value);
}
double Widen(BFloat16 value) { return value.ToFloat(); }
double Widen(Float16 value) { return value.ToDouble(); }
double Widen(Float8E4M3 value) { return value.ToDouble(); }
double Widen(Float8E5M2 value) { return value.ToDouble(); }

template <typename Stored>
void WidenAll(const char* bytes, double* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, bytes + i * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
    values[i] = Widen(stored);
  }
}

}  // namespace

void WidenElements(DType dtype, const char* bytes, double* values, int64_t count) {
  switch (dtype) {
    case DType::kFloat64:
      return WidenAll<double>(bytes, values, count);
    case DType::kFloat32:
      return WidenAll<float>(bytes, values, count);
    case DType::kBFloat16:
      return WidenAll<BFloat16>(bytes, values, count);
    case DType::kFloat16:
      return WidenAll<Float16>(bytes, values, count);
    case DType::kInt64:
      return WidenAll<int64_t>(bytes, values, count);
    case DType::kInt32:
      return WidenAll<int32_t>(bytes, values, count);
    case DType::kUint8:
      return WidenAll<uint8_t>(bytes, values, count);
    case DType::kFloat8E4M3:
      return WidenAll<Float8E4M3>(bytes, values, count);
    case DType::kFloat8E5M2:
      return WidenAll<Float8E5M2>(bytes, values, count);
  }
}

std::vector<int64_t> IndexOf(const std::vector<int64_t>& shape, int64_t element) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = element % shape[d];
    element /= shape[d];
  }
  return index;
}

int64_t TensorInfo::count() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  SUMONCE_ASSIGN_OR_RETURN(const int64_t file_bytes, FileBytes(path));
  std::ifstream file(path, std::ios::binary);
  if (!file) return CannotRead(path);
  SUMONCE_ASSIGN_OR_RETURN(const std::string text, ReadHeaderText(path, file, file_bytes));
  absl::StatusOr<internal::SafetensorsHeader> header = internal::ParseSafetensorsHeader(text);
  if (!header.ok()) return Invalid(path, header.status().message());
  SafetensorsReader reader;
  reader.path_ = path;
  reader.data_offset_ = kPrefixBytes + static_cast<int64_t>(text.size());
  reader.tensors_ = std::move(header->tensors);
  reader.metadata_ = std::move(header->metadata);
  SUMONCE_RETURN_IF_ERROR(CheckCoverage(path, reader.tensors_, file_bytes - reader.data_offset_));
  return reader;
}

absl::StatusOr<std::vector<double>> SafetensorsReader::Read(const std::string& name) const {
  const auto entry = tensors_.find(name);
  if (entry == tensors_.end()) return NoSuchTensor(name);
  std::vector<double> values(entry->second.count());
  SUMONCE_RETURN_IF_ERROR(ReadRange(name, 0, values));
  return values;
}

absl::Status SafetensorsReader::ReadRange(const std::string& name, int64_t first,
                                          std::span<double> values) const {
  const auto entry = tensors_.find(name);
  if (entry == tensors_.end()) return NoSuchTensor(name);
  const TensorInfo& info = entry->second;
  const int64_t wanted = static_cast<int64_t>(values.size());
  if (first < 0 || first > info.count() || wanted > info.count() - first) {
    return absl::OutOfRangeError(absl::StrCat(path_, ": tensor ", internal::Quoted(name), " has ",
                                              info.count(), " elements, none of ", wanted, " at ",
                                              first));
  }
  std::ifstream file(path_, std::ios::binary);
  if (!file || !file.seekg(data_offset_ + info.begin + first * SizeOf(info.dtype)))
    return CannotRead(path_);

  constexpr int64_t kChunk = 1 << 16;  // elements
  std::vector<char> bytes(std::min(kChunk, wanted) * SizeOf(info.dtype));
  for (int64_t done = 0; done < wanted; done += kChunk) {
    const int64_t count = std::min(kChunk, wanted - done);
    if (!ReadBytes(file, bytes.data(), count * SizeOf(info.dtype))) {
      return Invalid(path_, "tensor ", internal::Quoted(name), " ends early: the file was changed");
    }
    WidenElements(info.dtype, bytes.data(), values.data() + done, count);
  }
  return absl::OkStatus();
}

absl::Status SafetensorsReader::NoSuchTensor(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& [other, info] : tensors_) names.push_back(other);
  const std::string closest = Closest(name, names);
  return absl::NotFoundError(absl::StrCat(
      path_, ": no tensor ", internal::Quoted(name), " among its ", names.size(),
      closest.empty() ? "" : absl::StrCat("; did you mean ", internal::Quoted(closest), "?")));
}

}  // namespace sumonce

// The safetensors container: a little-endian u64 header length, a JSON header (padded with spaces
// to a multiple of 8), then row-major data without gaps. Format: huggingface/safetensors, README
// "Format".
//
// The reader trusts nothing: a truncated, overlapping, overlong, duplicate or hostile header
// (negative offsets, products that overflow, deep nesting, unknown dtypes, header beyond 100 MB or
// beyond the file) is an InvalidArgument that names the file, the tensor, the value found and what
// was expected. A header that is not padded is accepted: some writers do not pad. Memory stays
// bounded by the header plus the tensors that are asked for.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"

namespace sumonce {

struct TensorInfo {
  DType dtype = DType::kFloat64;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes from the start of the data section
  int64_t end = 0;

  int64_t count() const;  // elements
};

// Of the element-th in row-major order, one index a dimension; extents are positive.
std::vector<int64_t> IndexOf(const std::vector<int64_t>& shape, int64_t element);

// Elements as a file holds them, widened to double: any floating or integer dtype; an int64 beyond
// 2^53 is rounded.
void WidenElements(DType dtype, const char* bytes, double* values, int64_t count);

class SafetensorsReader {
 public:
  // Opens and checks the header. NotFound: no such file; InvalidArgument: directory, FIFO, empty,
  // garbage, hostile; the system's own error (PermissionDenied, ...) if it cannot be read.
  static absl::StatusOr<SafetensorsReader> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Where the data begin, in bytes from the start of the file.
  int64_t data_offset() const { return data_offset_; }

  // The tensor's elements, widened (WidenElements). NotFound names the nearest name.
  // InvalidArgument if the file has become shorter since Open.
  absl::StatusOr<std::vector<double>> Read(const std::string& name) const;
  // The `values.size()` elements from `first` on, in row-major order, for tensors that are read in
  // pieces. OutOfRange if the tensor has not so many.
  absl::Status ReadRange(const std::string& name, int64_t first, std::span<double> values) const;

 private:
  absl::Status NoSuchTensor(const std::string& name) const;

  std::string path_;
  int64_t data_offset_ = 0;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Writes a file at once, to a temporary beside `path` that is then renamed: nobody sees half a
// file. Tensors come in the order of decreasing element size, then of their names, so each is
// aligned. InvalidArgument: values do not fit the shape, a dtype that is not written, text that is
// not UTF-8. AlreadyExists unless `overwrite`. Else the system's error.
struct TensorToWrite {
  DType dtype = DType::kFloat32;  // stored as this: kFloat64, kFloat32 or kBFloat16 (by way of
                                  // float32, as in torch)
  std::vector<int64_t> shape;
  std::vector<double> values;
};
absl::Status WriteSafetensors(const std::string& path,
                              const std::map<std::string, TensorToWrite>& tensors,
                              const std::map<std::string, std::string>& metadata, bool overwrite);

}  // namespace sumonce

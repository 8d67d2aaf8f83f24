// The tensors of one safetensors file, read in pieces. The header's table is not kept here: callers
// keep what they need of it. Reads may come from several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"

namespace sumonce::capture {

// Where a tensor lies in its file.
struct StoredTensor {
  int64_t offset = -1;  // bytes from the start of the file; -1: there is none
  int64_t count = 0;    // elements
  DType dtype = DType::kFloat32;

  bool present() const { return offset >= 0; }
  int64_t bytes() const { return count * SizeOf(dtype); }
};

class TensorFile {
 public:
  // The system's error if it cannot be opened. With `keep_open` false each read opens the file
  // anew: more ranks than a process may have files open.
  static absl::StatusOr<TensorFile> Open(const std::string& path, bool keep_open);

  // `bytes` bytes from `offset`. InvalidArgument if the file ends before: it was changed since its
  // header was read.
  absl::Status ReadBytes(int64_t offset, int64_t bytes, char* out) const;
  // Elements [begin, begin + count) of a tensor, widened to double.
  absl::Status Read(const StoredTensor& tensor, int64_t begin, int64_t count, double* out) const;
  // Tells the system that these bytes will be read soon.
  void WillRead(int64_t offset, int64_t bytes) const;

  const std::string& path() const { return path_; }

 private:
  class Descriptor {
   public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int fd() const { return fd_; }

   private:
    int fd_;
  };
  static absl::StatusOr<std::shared_ptr<Descriptor>> OpenDescriptor(const std::string& path);

  std::string path_;
  std::shared_ptr<Descriptor> descriptor_;  // null: opened at each read
};

}  // namespace sumonce::capture

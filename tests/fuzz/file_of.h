// The bytes of a fuzzer as a file in memory, for readers that open a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace sumonce::fuzz {

class FileOf {
 public:
  FileOf(const uint8_t* data, size_t size) : descriptor_(memfd_create("fuzz", 0)) {
    if (descriptor_ < 0) std::abort();
    for (size_t written = 0; written < size;) {
      const ssize_t more = write(descriptor_, data + written, size - written);
      if (more <= 0) std::abort();
      written += static_cast<size_t>(more);
    }
  }
  ~FileOf() { close(descriptor_); }
  FileOf(const FileOf&) = delete;
  FileOf& operator=(const FileOf&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace sumonce::fuzz

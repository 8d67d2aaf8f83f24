// Memory for measurements: zeroed, on pages of its own, on huge pages where the system allows it,
// and touched before it is used, so that no first touch is timed.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace sumonce {

class PageBuffer {
 public:
  PageBuffer() = default;  // no bytes
  // ResourceExhausted: the system has no such memory.
  static absl::StatusOr<PageBuffer> Create(int64_t bytes);

  void* data() const { return memory_.get(); }

 private:
  class Unmap {
   public:
    explicit Unmap(size_t bytes = 0) : bytes_(bytes) {}
    void operator()(void* memory) const;

   private:
    size_t bytes_;
  };
  std::unique_ptr<void, Unmap> memory_{nullptr, Unmap()};
};

}  // namespace sumonce

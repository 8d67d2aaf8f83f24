#include "cost/page_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace sumonce {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

absl::StatusOr<PageBuffer> PageBuffer::Create(int64_t bytes) {
  const size_t size =
      (static_cast<size_t>(std::max<int64_t>(bytes, 1)) + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a buffer of ", bytes, " bytes"));
  madvise(memory, size, MADV_HUGEPAGE);  // a hint: where it is refused, pages are small
  std::memset(memory, 0, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  PageBuffer buffer;
  buffer.memory_ = std::unique_ptr<void, Unmap>(memory, Unmap(size));
  return buffer;
}

void PageBuffer::Unmap::operator()(void* memory) const { munmap(memory, bytes_); }

}  // namespace sumonce

#include "capture/reader/tensor_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/safetensors.h"
#include "base/status.h"

namespace sumonce::capture {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;  // widened through a buffer of this size

}  // namespace

TensorFile::Descriptor::~Descriptor() { close(fd_); }

absl::StatusOr<std::shared_ptr<TensorFile::Descriptor>> TensorFile::OpenDescriptor(
    const std::string& path) {
  // Not blocking: a FIFO put in the file's place since its header was read must not hang us.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be read"));
  auto descriptor = std::make_shared<Descriptor>(fd);
  struct stat status = {};
  if (fstat(fd, &status) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be read"));
  if (!S_ISREG(status.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  return descriptor;
}

absl::StatusOr<TensorFile> TensorFile::Open(const std::string& path, bool keep_open) {
  TensorFile file;
  file.path_ = path;
  SUMONCE_ASSIGN_OR_RETURN(std::shared_ptr<Descriptor> descriptor, OpenDescriptor(path));
  if (keep_open) file.descriptor_ = std::move(descriptor);
  return file;
}

absl::Status TensorFile::ReadBytes(int64_t offset, int64_t bytes, char* out) const {
  std::shared_ptr<Descriptor> descriptor = descriptor_;
  if (!descriptor) {
    SUMONCE_ASSIGN_OR_RETURN(descriptor, OpenDescriptor(path_));
  }
  while (bytes > 0) {
    const ssize_t got = pread(descriptor->fd(), out, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot be read"));
    if (got == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          path_,
          ": ends early: the file was changed while it was read; audit it when the job has "
          "written it"));
    }
    out += got;
    offset += got;
    bytes -= got;
  }
  return absl::OkStatus();
}

absl::Status TensorFile::Read(const StoredTensor& tensor, int64_t begin, int64_t count,
                              double* out) const {
  SUMONCE_CHECK(begin >= 0 && count >= 0 && begin + count <= tensor.count)
      << begin << " + " << count << " of " << tensor.count;
  const int64_t size = SizeOf(tensor.dtype);
  if (tensor.dtype == DType::kFloat64)
    return ReadBytes(tensor.offset + begin * size, count * size, reinterpret_cast<char*>(out));
  thread_local std::vector<char> buffer(kPieceBytes);
  const int64_t piece = kPieceBytes / size;
  for (int64_t done = 0; done < count; done += piece) {
    const int64_t now = std::min(piece, count - done);
    SUMONCE_RETURN_IF_ERROR(
        ReadBytes(tensor.offset + (begin + done) * size, now * size, buffer.data()));
    WidenElements(tensor.dtype, buffer.data(), out + done, now);
  }
  return absl::OkStatus();
}

void TensorFile::WillRead(int64_t offset, int64_t bytes) const {
  if (descriptor_) posix_fadvise(descriptor_->fd(), offset, bytes, POSIX_FADV_WILLNEED);
}

}  // namespace sumonce::capture

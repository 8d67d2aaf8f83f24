#include "trace/reader/line_source.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce::trace {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 18;

}  // namespace

struct LineSource::File {
  gzFile handle = nullptr;
  ~File() {
    if (handle != nullptr) gzclose_r(handle);
  }
};

LineSource::LineSource(std::unique_ptr<File> file, std::string path, const LineLimits& limits)
    : file_(std::move(file)), path_(std::move(path)), limits_(limits) {}
LineSource::~LineSource() = default;

absl::StatusOr<std::unique_ptr<LineSource>> LineSource::Open(const std::string& path,
                                                             const LineLimits& limits) {
  auto file = std::make_unique<File>();
  errno = 0;
  file->handle = gzopen(path.c_str(), "rb");
  if (file->handle == nullptr) {
    const std::string why = errno != 0 ? std::strerror(errno) : "no memory";
    return absl::NotFoundError(absl::StrCat(path, ": error: cannot be read: ", why));
  }
  gzbuffer(file->handle, kChunkBytes);
  return std::unique_ptr<LineSource>(new LineSource(std::move(file), path, limits));
}

// Reads one chunk more behind what is not handed out yet.
absl::Status LineSource::Fill() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  if (static_cast<int64_t>(buffer_.size()) > limits_.line_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ":", line_number_ + 1, ": error: a line of more than ",
                     limits_.line_bytes, " bytes; no record of a trace is as long"));
  }
  const size_t kept = buffer_.size();
  buffer_.resize(kept + kChunkBytes);
  const int got = gzread(file_->handle, buffer_.data() + kept, kChunkBytes);
  buffer_.resize(kept + static_cast<size_t>(std::max(got, 0)));
  int code = Z_OK;
  const char* message = gzerror(file_->handle, &code);
  if (got < 0 || code == Z_BUF_ERROR) {
    return absl::InvalidArgumentError(absl::StrCat(
        path_, ": error: ",
        code == Z_BUF_ERROR ? "ends in the middle of its gzip stream; copy or trace it again"
                            : absl::StrCat("cannot be unpacked: ", message)));
  }
  ended_ = got == 0;
  total_bytes_ += got;
  if (total_bytes_ > limits_.total_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path_, ": error: more than ", limits_.total_bytes, " bytes of text; trace fewer layers"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> LineSource::Next(std::string_view& line) {
  size_t searched = begin_;
  while (true) {
    const size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos || (ended_ && begin_ < buffer_.size())) {
      const size_t stop = end == std::string::npos ? buffer_.size() : end;
      line = std::string_view(buffer_).substr(begin_, stop - begin_);
      begin_ = std::min(stop + 1, buffer_.size());
      ++line_number_;
      return true;
    }
    if (ended_) return false;
    const size_t pending = buffer_.size() - begin_;
    SUMONCE_RETURN_IF_ERROR(Fill());
    searched = pending;
  }
}

}  // namespace sumonce::trace

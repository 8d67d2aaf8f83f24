// The lines of a text file, plain or gzip (told by its first bytes), one at a time and with bounded
// memory. For one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sumonce::trace {

struct LineLimits {
  int64_t line_bytes = int64_t{16} << 20;
  int64_t total_bytes = int64_t{1} << 30;  // after unpacking
};

class LineSource {
 public:
  // NotFound, PermissionDenied as the system says it.
  static absl::StatusOr<std::unique_ptr<LineSource>> Open(const std::string& path,
                                                          const LineLimits& limits = {});
  ~LineSource();

  // False at the end. The view lives until the next call. InvalidArgument: a file that ends in the
  // middle of its gzip stream, damaged data, a line or a file beyond the limits.
  absl::StatusOr<bool> Next(std::string_view& line);
  int64_t line_number() const { return line_number_; }  // of the last one, from 1

 private:
  struct File;
  LineSource(std::unique_ptr<File> file, std::string path, const LineLimits& limits);
  absl::Status Fill();

  std::unique_ptr<File> file_;
  std::string path_;
  LineLimits limits_;
  std::string buffer_;
  size_t begin_ = 0;  // of what was not handed out yet
  bool ended_ = false;
  int64_t total_bytes_ = 0;
  int64_t line_number_ = 0;
};

}  // namespace sumonce::trace

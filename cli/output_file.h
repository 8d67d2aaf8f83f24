// A file that a report is written to: never over another without leave, and never half.
#pragma once

#include <fstream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace sumonce {

// Written beside its place as "<path>.partial" and put there by Commit; without Commit nothing
// remains. What is there and no regular file (a pipe, /dev/null) is written to as it is.
class OutputFile {
 public:
  // AlreadyExists: something is there and `overwrite` is not set. InvalidArgument: a directory.
  // Unavailable: it cannot be written. Each names the path and what to do.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Open(const std::string& path, bool overwrite);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  std::ostream& stream() { return stream_; }
  // Once. Unavailable: it could not be written.
  absl::Status Commit();

 private:
  OutputFile(std::string path, std::string written_path, bool overwrite);

  std::string path_;
  std::string written_path_;  // path_ itself if it is no regular file
  bool overwrite_;
  bool committed_ = false;
  std::ofstream stream_;
};

}  // namespace sumonce

#include "cli/output_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sumonce {
namespace {

namespace fs = std::filesystem;

absl::Status CannotWrite(const std::string& path, const std::string& reason) {
  return absl::UnavailableError(absl::StrCat(path, ": cannot be written: ", reason));
}

absl::Status Exists(const std::string& path) {
  return absl::AlreadyExistsError(
      absl::StrCat(path, ": is there already; give another name, or --force to overwrite it"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Open(const std::string& path,
                                                             bool overwrite) {
  std::error_code ignored;
  const fs::file_status there = fs::status(path, ignored);
  if (fs::is_directory(there))
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a directory; give the name of a file"));
  const bool in_place = fs::exists(there) && !fs::is_regular_file(there);
  if (fs::exists(there) && !in_place && !overwrite) return Exists(path);
  std::unique_ptr<OutputFile> file(
      new OutputFile(path, in_place ? path : absl::StrCat(path, ".partial"), overwrite));
  file->stream_.open(file->written_path_, std::ios::binary);
  if (!file->stream_) return CannotWrite(path, std::strerror(errno));
  return file;
}

OutputFile::OutputFile(std::string path, std::string written_path, bool overwrite)
    : path_(std::move(path)), written_path_(std::move(written_path)), overwrite_(overwrite) {}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (!committed_ && written_path_ != path_) fs::remove(written_path_, ignored);
}

absl::Status OutputFile::Commit() {
  stream_.close();
  if (!stream_) return CannotWrite(path_, std::strerror(errno));
  if (written_path_ == path_) return absl::OkStatus();
  std::error_code error;
  if (overwrite_) {
    fs::rename(written_path_, path_, error);
  } else {
    fs::create_hard_link(written_path_, path_,
                         error);  // unlike rename, fails if it is there by now
    if (error == std::errc::file_exists) return Exists(path_);
    if (error) {  // a file system without links
      error.clear();
      if (fs::exists(path_)) return Exists(path_);
      fs::rename(written_path_, path_, error);
    }
  }
  if (error) return CannotWrite(path_, error.message());
  std::error_code ignored;
  fs::remove(written_path_, ignored);
  committed_ = true;
  return absl::OkStatus();
}

}  // namespace sumonce

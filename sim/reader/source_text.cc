#include "sim/reader/source_text.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sumonce {
namespace {

constexpr size_t kMaxBytes = size_t{16} << 20;
constexpr int kMaxDepth = 32;
constexpr size_t kNowhere = std::string::npos;

std::string SystemError() { return std::strerror(errno); }

absl::Status CheckIsRegular(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat("cannot be read: ", SystemError()));
  }
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        "is a directory, expected a scenario file; a directory is searched for *.textproto");
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        "is a pipe, socket or device, expected a regular file; write the scenario to a file");
  }
  if (info.st_size > static_cast<off_t>(kMaxBytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", info.st_size, " bytes, expected at most ", kMaxBytes, "; is it a scenario?"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadFileText(const std::string& path) {
  if (absl::Status status = CheckIsRegular(path); !status.ok()) return status;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) {
    return absl::PermissionDeniedError(absl::StrCat("cannot be read: ", SystemError()));
  }
  std::string text;
  char buffer[1 << 14];
  size_t got = 0;
  while (text.size() <= kMaxBytes && (got = std::fread(buffer, 1, sizeof buffer, file.get())) > 0) {
    text.append(buffer, got);
  }
  if (std::ferror(file.get())) {
    return absl::DataLossError(absl::StrCat("cannot be read: ", SystemError()));
  }
  if (text.size() > kMaxBytes) return absl::InvalidArgumentError("grows while it is read");
  return text;
}

SourceText::SourceText(std::string file, std::string text)
    : file_(std::move(file)), text_(std::move(text)), lines_{0} {
  for (size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\n') lines_.push_back(i + 1);
  }
}

Location SourceText::At(size_t offset) const {
  offset = std::min(offset, text_.size());
  const auto next = std::upper_bound(lines_.begin(), lines_.end(), offset);
  const int line = static_cast<int>(next - lines_.begin());
  return {file_, line, static_cast<int>(offset - lines_[line - 1]) + 1};
}

size_t SourceText::Offset(int line, int column) const {
  if (line < 0) return 0;
  if (line >= static_cast<int>(lines_.size())) return text_.size();
  size_t offset = lines_[line];
  for (int at = 0; at < column && offset < text_.size() && text_[offset] != '\n'; ++offset) {
    at += text_[offset] == '\t' ? 8 - at % 8 : 1;
  }
  return offset;
}

bool SourceText::CheckIsText(Mistakes& mistakes) const {
  if (text_.rfind("\xef\xbb\xbf", 0) == 0) {
    mistakes.Add(At(0),
                 "the file begins with a byte order mark (ef bb bf), expected plain UTF-8; save it "
                 "as UTF-8 without one");
    return false;
  }
  for (size_t i = 0; i < text_.size(); ++i) {
    const unsigned char c = text_[i];
    if ((c >= ' ' && c != 0x7f) || (c >= '\t' && c <= '\r')) continue;
    mistakes.Add(At(i), absl::StrCat("byte 0x", absl::Hex(c, absl::kZeroPad2),
                                     " is no text, expected a scenario in protobuf text format; "
                                     "is this the right file?"));
    return false;
  }
  if (const size_t bad = InvalidUtf8(text_); bad != kNowhere) {
    mistakes.Add(At(bad), absl::StrCat("byte 0x", absl::Hex(static_cast<unsigned char>(text_[bad])),
                                       " is no UTF-8, expected a scenario in protobuf text "
                                       "format; save the file as UTF-8"));
    return false;
  }
  if (Blank()) {
    mistakes.Add(
        At(0), "the file is empty, expected a scenario; docs/EXTENDING.md shows how to write one");
    return false;
  }
  if (const size_t deep = NestsTooDeep(); deep != kNowhere) {
    mistakes.Add(At(deep), absl::StrCat("more than ", kMaxDepth,
                                        " levels of braces, a scenario "
                                        "has at most 4; close some"));
    return false;
  }
  return true;
}

bool SourceText::Blank() const {
  bool comment = false;
  for (const char c : text_) {
    if (c == '#') comment = true;
    if (c == '\n') comment = false;
    if (!comment && !std::strchr(" \t\r\n\v\f", c)) return false;
  }
  return true;
}

size_t SourceText::NestsTooDeep() const {
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i < text_.size(); ++i) {
    const char c = text_[i];
    if (quote) {
      if (c == '\\') ++i;
      if (c == quote || c == '\n') quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      i = std::min(text_.find('\n', i), text_.size());
    } else if (std::strchr("{<[", c)) {
      if (++depth > kMaxDepth) return i;
    } else if (std::strchr("}>]", c)) {
      --depth;
    }
  }
  return kNowhere;
}

size_t InvalidUtf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const unsigned char c = text[i];
    const size_t length = c < 0x80   ? 1
                          : c < 0xc2 ? 0
                          : c < 0xe0 ? 2
                          : c < 0xf0 ? 3
                          : c < 0xf5 ? 4
                                     : 0;
    if (length == 0 || i + length > text.size()) return i;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return i;
    }
    const unsigned char next = length > 1 ? text[i + 1] : 0;
    // Longer than needed, surrogates, beyond U+10FFFF.
    if ((c == 0xe0 && next < 0xa0) || (c == 0xed && next > 0x9f) || (c == 0xf0 && next < 0x90) ||
        (c == 0xf4 && next > 0x8f)) {
      return i;
    }
    i += length;
  }
  return kNowhere;
}

}  // namespace sumonce

// The bytes of a scenario file, checked to be text before any parser sees them, and the
// translation of the parser's positions into those that editors and compilers show.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/reader/mistakes.h"

namespace sumonce {

// The bytes of a regular file of at most 16 MiB. The status's message says what is there instead
// and what to do; a pipe or device is refused unopened.
absl::StatusOr<std::string> ReadFileText(const std::string& path);

class SourceText {
 public:
  SourceText(std::string file, std::string text);

  const std::string& file() const { return file_; }
  const std::string& text() const { return text_; }

  // Of an offset in bytes: line and column from 1, a column is a byte.
  Location At(size_t offset) const;
  // Of the protobuf tokenizer's position: from 0, where a tab reaches to the next multiple of 8.
  size_t Offset(int line, int column) const;

  // Adds what keeps the file from being read at all: nothing in it, control characters, bytes that
  // are not UTF-8, braces nested deeper than any scenario's. False if there was something.
  bool CheckIsText(Mistakes& mistakes) const;

 private:
  bool Blank() const;           // nothing but space and comments
  size_t NestsTooDeep() const;  // where, or npos

  std::string file_;
  std::string text_;
  std::vector<size_t> lines_;  // where each begins
};

// Where `text` stops being UTF-8, or npos.
size_t InvalidUtf8(const std::string& text);

}  // namespace sumonce

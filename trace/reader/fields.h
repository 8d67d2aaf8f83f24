// Fields of a JSON line, checked: each returns InvalidArgument with the field's name and what was
// expected.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "trace/program.h"
#include "trace/reader/json_line.h"

namespace sumonce::trace {

absl::Status ReadText(const JsonLine& line, const JsonLine::Value& object, std::string_view key,
                      std::string_view& text);
absl::Status ReadInteger(const JsonLine& line, const JsonLine::Value& object, std::string_view key,
                         int64_t low, int64_t high, int64_t& integer);
// A list of integers.
absl::Status ReadExtents(const JsonLine& line, const JsonLine::Value& object, std::string_view key,
                         Extents& extents);
// "true", "1", "text" of a value that is no list or object; else "...".
std::string ScalarText(const JsonLine::Value& value);

}  // namespace sumonce::trace

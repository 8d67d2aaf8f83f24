#include "trace/reader/fields.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce::trace {
namespace {

absl::Status Expected(std::string_view key, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("'", ToAbsl(key), "': expected ", what));
}

}  // namespace

absl::Status ReadText(const JsonLine& line, const JsonLine::Value& object, std::string_view key,
                      std::string_view& text) {
  const JsonLine::Value* value = line.Find(object, key);
  if (value == nullptr || value->kind != JsonLine::Kind::kString) return Expected(key, "a text");
  text = value->text;
  return absl::OkStatus();
}

absl::Status ReadInteger(const JsonLine& line, const JsonLine::Value& object, std::string_view key,
                         int64_t low, int64_t high, int64_t& integer) {
  const JsonLine::Value* value = line.Find(object, key);
  const bool inside = value != nullptr && value->kind == JsonLine::Kind::kInteger &&
                      value->integer >= low && value->integer <= high;
  if (!inside) {
    const std::string found = value == nullptr ? "" : absl::StrCat(", not ", ScalarText(*value));
    return Expected(key, absl::StrCat("an integer from ", low, " to ", high, found));
  }
  integer = value->integer;
  return absl::OkStatus();
}

absl::Status ReadExtents(const JsonLine& line, const JsonLine::Value& object, std::string_view key,
                         Extents& extents) {
  const JsonLine::Value* value = line.Find(object, key);
  if (value == nullptr || value->kind != JsonLine::Kind::kArray)
    return Expected(key, "a list of integers");
  for (const JsonLine::Value* item = line.First(*value); item; item = line.Next(*item)) {
    if (item->kind != JsonLine::Kind::kInteger) return Expected(key, "a list of integers");
    extents.push_back(item->integer);
  }
  return absl::OkStatus();
}

std::string ScalarText(const JsonLine::Value& value) {
  switch (value.kind) {
    case JsonLine::Kind::kNull:
      return "null";
    case JsonLine::Kind::kBool:
      return value.integer != 0 ? "true" : "false";
    case JsonLine::Kind::kInteger:
      return absl::StrCat(value.integer);
    case JsonLine::Kind::kFloat:
      return absl::StrCat(value.number);
    case JsonLine::Kind::kString:
      return std::string(value.text);
    default:
      return "...";
  }
}

}  // namespace sumonce::trace

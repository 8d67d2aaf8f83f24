#include "trace/reader/json_line.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace sumonce::trace {
namespace {

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxValues = size_t{1} << 20;

}  // namespace

// The events of nlohmann's parser, in the order in which it calls them.
class JsonLineBuilder {
 public:
  explicit JsonLineBuilder(JsonLine& line) : line_(line) {}

  bool null() { return Add({}); }
  bool boolean(bool value) { return Add({.kind = JsonLine::Kind::kBool, .integer = value}); }
  bool number_integer(int64_t value) {
    return Add(
        {.kind = JsonLine::Kind::kInteger, .integer = value, .number = static_cast<double>(value)});
  }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return Refuse("an integer beyond 2^63");
    return number_integer(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string&) {
    return Add({.kind = JsonLine::Kind::kFloat, .number = value});
  }
  bool string(std::string& value) {
    return Add({.kind = JsonLine::Kind::kString, .text = Keep(value)});
  }
  bool binary(std::vector<uint8_t>&) { return Refuse("binary data"); }
  bool start_object(size_t) { return Open(JsonLine::Kind::kObject); }
  bool start_array(size_t) { return Open(JsonLine::Kind::kArray); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& value) {
    key_ = Keep(value);
    return true;
  }
  template <typename Exception>
  bool parse_error(size_t position, const std::string&, const Exception&) {
    return Refuse(absl::StrCat("no JSON at byte ", position));
  }

  const std::string& refused() const { return refused_; }

 private:
  bool Refuse(std::string why) {
    if (refused_.empty()) refused_ = std::move(why);
    return false;
  }
  std::string_view Keep(std::string& value) {
    line_.strings_.push_back(std::move(value));
    return line_.strings_.back();
  }
  bool Add(JsonLine::Value value) {
    if (line_.values_.size() >= kMaxValues)
      return Refuse(absl::StrCat("more than ", kMaxValues, " values in a line"));
    value.key = key_;
    key_ = {};
    const int index = static_cast<int>(line_.values_.size());
    if (!open_.empty()) {
      auto& [parent, last] = open_.back();
      ++line_.values_[parent].count;
      (last < 0 ? line_.values_[parent].first : line_.values_[last].next) = index;
      last = index;
    }
    line_.values_.push_back(value);
    return true;
  }
  bool Open(JsonLine::Kind kind) {
    if (open_.size() >= kMaxDepth)
      return Refuse(absl::StrCat("nested more than ", kMaxDepth, " deep"));
    if (!Add({.kind = kind})) return false;
    open_.push_back({static_cast<int>(line_.values_.size()) - 1, -1});
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  JsonLine& line_;
  std::vector<std::pair<int, int>> open_;  // array or object, its last child
  std::string_view key_;
  std::string refused_;
};

absl::Status JsonLine::Parse(std::string_view line) {
  values_.clear();
  strings_.clear();
  JsonLineBuilder builder(*this);
  if (!nlohmann::json::sax_parse(line.begin(), line.end(), &builder))
    return absl::InvalidArgumentError(builder.refused());
  return absl::OkStatus();
}

const JsonLine::Value* JsonLine::Find(const Value& object, std::string_view key) const {
  if (object.kind != Kind::kObject) return nullptr;
  for (const Value* value = First(object); value != nullptr; value = Next(*value)) {
    if (value->key == key) return value;
  }
  return nullptr;
}

}  // namespace sumonce::trace

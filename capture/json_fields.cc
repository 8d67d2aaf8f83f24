#include "capture/json_fields.h"

#include <cmath>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/safetensors_header.h"
#include "base/status.h"

namespace sumonce::capture {
namespace {

constexpr size_t kMaxLines = 20;
constexpr size_t kMaxShown = 60;  // characters of a value in a message
constexpr int kMaxDepth = 64;

std::string Shown(const nlohmann::json& json) {
  std::string text = json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

// Whether brackets, outside of strings, nest too deep: a document is freed as deep as it nests.
bool TooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// A whole number, or one written as text.
std::optional<int64_t> WholeNumber(const nlohmann::json& json) {
  int64_t value = 0;
  if (json.is_number_unsigned()) {
    const auto number = json.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_string() && absl::SimpleAtoi(json.get_ref<const std::string&>(), &value))
    return value;
  return std::nullopt;
}

}  // namespace

void Problems::Add(std::string_view place, std::string_view problem) {
  ++count_;
  if (lines_.size() < kMaxLines) {
    lines_.push_back(absl::StrCat(file_, ": ", place.empty() ? "" : internal::Quoted(place),
                                  place.empty() ? "" : " ", ToAbsl(problem)));
  }
}

absl::Status Problems::ToStatus() const {
  if (empty()) return absl::OkStatus();
  std::string text = absl::StrJoin(lines_, "\n");
  if (count_ > static_cast<int64_t>(lines_.size())) {
    absl::StrAppend(&text, "\n", file_, ": and ", count_ - static_cast<int64_t>(lines_.size()),
                    " more mistakes");
  }
  return absl::InvalidArgumentError(text);
}

std::optional<nlohmann::json> ParseJson(std::string_view text, std::string_view place,
                                        Problems& problems) {
  if (static_cast<int64_t>(text.size()) > kMaxJsonBytes) {
    problems.Add(place, absl::StrCat("has ", text.size(), " bytes of JSON; expected at most ",
                                     kMaxJsonBytes));
    return std::nullopt;
  }
  if (TooDeep(text)) {
    problems.Add(place, absl::StrCat("nests more than ", kMaxDepth, " levels deep"));
    return std::nullopt;
  }
  nlohmann::json json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  if (json.is_discarded()) {
    std::string shown(text.substr(0, kMaxShown));
    problems.Add(place,
                 absl::StrCat("is no JSON: ", internal::Quoted(shown),
                              text.size() > kMaxShown ? "..." : "", "; write it with json.dumps"));
    return std::nullopt;
  }
  return json;
}

std::optional<JsonField> JsonField::Find(const std::string& key) const {
  if (!json_->is_object()) {
    Expected("an object");
    return std::nullopt;
  }
  const auto member = json_->find(key);
  if (member == json_->end() || member->is_null()) return std::nullopt;
  return JsonField(*member, place_.empty() ? key : place_ + "." + key, *problems_);
}

std::optional<JsonField> JsonField::Require(const std::string& key) const {
  std::optional<JsonField> field = Find(key);
  if (!field && json_->is_object())
    problems_->Add(place_.empty() ? key : place_ + "." + key, "is missing");
  return field;
}

std::vector<std::pair<std::string, JsonField>> JsonField::Members() const {
  std::vector<std::pair<std::string, JsonField>> members;
  if (!json_->is_object()) {
    Expected("an object");
    return members;
  }
  for (auto member = json_->begin(); member != json_->end(); ++member) {
    members.emplace_back(
        member.key(),
        JsonField(*member, place_.empty() ? member.key() : place_ + "." + member.key(),
                  *problems_));
  }
  return members;
}

std::vector<JsonField> JsonField::Elements() const {
  std::vector<JsonField> elements;
  if (!json_->is_array()) {
    Expected("a list");
    return elements;
  }
  for (size_t i = 0; i < json_->size(); ++i)
    elements.emplace_back((*json_)[i], absl::StrCat(place_, "[", i, "]"), *problems_);
  return elements;
}

std::optional<int64_t> JsonField::Integer(int64_t low, int64_t high) const {
  const std::optional<int64_t> value = WholeNumber(*json_);
  if (value && *value >= low && *value <= high) return value;
  Expected(high == std::numeric_limits<int64_t>::max()
               ? absl::StrCat("a whole number of at least ", low)
               : absl::StrCat("a whole number from ", low, " to ", high));
  return std::nullopt;
}

std::optional<double> JsonField::Number() const {
  double value = 0;
  const bool read =
      json_->is_number()
          ? (value = json_->get<double>(), true)
          : json_->is_string() && absl::SimpleAtod(json_->get_ref<const std::string&>(), &value);
  if (read && std::isfinite(value)) return value;
  Expected("a finite number");
  return std::nullopt;
}

std::optional<std::string> JsonField::Text() const {
  if (json_->is_string()) return json_->get<std::string>();
  Expected("text");
  return std::nullopt;
}

std::optional<bool> JsonField::Bool() const {
  if (json_->is_boolean()) return json_->get<bool>();
  Expected("true or false");
  return std::nullopt;
}

std::vector<int64_t> JsonField::Integers(int64_t low, int64_t high) const {
  std::vector<int64_t> values;
  for (const JsonField& element : Elements()) {
    if (const std::optional<int64_t> value = element.Integer(low, high)) values.push_back(*value);
  }
  return values;
}

void JsonField::Expected(std::string_view expectation) const {
  Problem(absl::StrCat("is ", Shown(*json_), "; expected ", ToAbsl(expectation)));
}

}  // namespace sumonce::capture

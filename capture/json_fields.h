// Reading JSON that somebody else wrote: every field is checked, and all mistakes are kept, each
// with its place, the value found and what was expected. No exception; bounded text.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace sumonce::capture {

// The mistakes of one file, in the order found.
class Problems {
 public:
  // `file` begins each line.
  explicit Problems(std::string file) : file_(std::move(file)) {}

  // `place`: "mesh.tp.size"; `problem`: "is 0; expected a whole number of at least 1".
  void Add(std::string_view place, std::string_view problem);
  bool empty() const { return count_ == 0; }
  const std::string& file() const { return file_; }
  // OK if none, else InvalidArgument: one line each, the first 20 and how many more.
  absl::Status ToStatus() const;

 private:
  std::string file_;
  std::vector<std::string> lines_;
  int64_t count_ = 0;
};

// Longest JSON text that is parsed: a document takes up to some 16 times as much memory.
inline constexpr int64_t kMaxJsonBytes = int64_t{32} << 20;

// The document, or nothing and a problem at `place`: no JSON, too long, nested more than 64 deep.
std::optional<nlohmann::json> ParseJson(std::string_view text, std::string_view place,
                                        Problems& problems);

// A value with the place that messages name. The document outlives it.
class JsonField {
 public:
  JsonField(const nlohmann::json& json, std::string place, Problems& problems)
      : json_(&json), place_(std::move(place)), problems_(&problems) {}

  const nlohmann::json& json() const { return *json_; }
  const std::string& place() const { return place_; }
  bool is_null() const { return json_->is_null(); }

  // The member, or nothing if it is absent (null counts as absent); a problem if this is no object.
  std::optional<JsonField> Find(const std::string& key) const;
  // The same, with a problem if it is absent.
  std::optional<JsonField> Require(const std::string& key) const;
  // Name and value of each member; elements of a list. A problem if it is none.
  std::vector<std::pair<std::string, JsonField>> Members() const;
  std::vector<JsonField> Elements() const;

  // The value, or nothing and a problem. A whole number may be written as text ("3").
  std::optional<int64_t> Integer(int64_t low, int64_t high) const;
  std::optional<double> Number() const;  // finite
  std::optional<std::string> Text() const;
  std::optional<bool> Bool() const;
  std::vector<int64_t> Integers(int64_t low, int64_t high) const;

  void Problem(std::string_view problem) const { problems_->Add(place_, problem); }
  // "is \"x\"; expected a whole number": the value as JSON, cut short.
  void Expected(std::string_view expectation) const;

 private:
  const nlohmann::json* json_;
  std::string place_;
  Problems* problems_;
};

}  // namespace sumonce::capture

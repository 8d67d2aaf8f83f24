// One line of JSON as a flat tree: cheaper than a document object, and bounded in depth and size
// whatever the line holds. For one thread; views live as long as the JsonLine and until its next
// Parse.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace sumonce::trace {

class JsonLine {
 public:
  enum class Kind : uint8_t { kNull, kBool, kInteger, kFloat, kString, kArray, kObject };
  struct Value {
    Kind kind = Kind::kNull;
    int64_t integer = 0;    // kBool, kInteger
    double number = 0;      // kInteger, kFloat
    std::string_view text;  // kString
    std::string_view key;   // in an object
    int next = -1;          // sibling
    int first = -1;         // child
    int count = 0;          // children
  };

  // InvalidArgument says what is wrong and at which byte, without the place of the line.
  absl::Status Parse(std::string_view line);

  const Value& root() const { return values_[0]; }
  const Value* First(const Value& parent) const { return At(parent.first); }
  const Value* Next(const Value& value) const { return At(value.next); }
  const Value* Find(const Value& object, std::string_view key) const;  // null: absent

 private:
  friend class JsonLineBuilder;
  const Value* At(int index) const { return index < 0 ? nullptr : &values_[index]; }

  std::vector<Value> values_;
  std::deque<std::string> strings_;
};

}  // namespace sumonce::trace

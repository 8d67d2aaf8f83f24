// A message of a parsed scenario file as the readers of its parts see it: fields by their names in
// proto/*.proto, each with its place in the file, so that a mistake can point at it.
//
// Reading a field that the schema does not have is our own fault and fails a check. Reading never
// stops at a mistake: it is collected, and the fallback is returned.
#pragma once

#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/reader/mistakes.h"
#include "sim/reader/source_text.h"

namespace google::protobuf {
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

namespace sumonce {

// Places of all fields of a file: (message, field number, index).
struct TextRange {
  Location begin;
  Location end;
};
using Places = std::map<std::tuple<const google::protobuf::Message*, int, int>, TextRange>;

class Block {
 public:
  Block(const google::protobuf::Message* message, const Places* places, Mistakes* mistakes,
        std::string name, TextRange span)
      : message_(message),
        places_(places),
        mistakes_(mistakes),
        name_(std::move(name)),
        span_(std::move(span)) {}

  const std::string& name() const { return name_; }  // the field that holds it, "linear_attention"
  const Location& at() const { return span_.begin; }
  bool Given(std::string_view field) const;
  // Of the field's `index`-th value; of the block if it is absent.
  Location At(std::string_view field, int index = 0) const;

  bool Flag(std::string_view field) const;
  // Integers in [least, most].
  int64_t Int(std::string_view field, int64_t fallback, int64_t least,
              int64_t most = std::numeric_limits<int32_t>::max()) const;
  uint64_t Unsigned(std::string_view field, uint64_t fallback) const;
  // Finite numbers in [least, most].
  double Number(std::string_view field, double fallback,
                double least = std::numeric_limits<double>::lowest(),
                double most = std::numeric_limits<double>::max()) const;
  std::string Text(std::string_view field) const;
  std::vector<std::string> Texts(std::string_view field) const;
  std::vector<int> Ints(std::string_view field) const;
  // The value's name in the schema; its number as text if it has none.
  std::string EnumName(std::string_view field) const;

  // An enum's value by its name. Absent: `fallback`.
  template <typename T>
  T Choice(std::string_view field, T fallback,
           std::initializer_list<std::pair<const char*, T>> values) const {
    if (!Given(field)) return fallback;
    const std::string name = EnumName(field);
    std::vector<std::string> names;
    for (const auto& [value_name, value] : values) {
      if (name == value_name) return value;
      names.push_back(value_name);
    }
    Add(field, std::string(field) + ": " + name + ", expected " + OneOf(names, 40));
    return fallback;
  }

  Block Child(std::string_view field) const;                  // absent: all its fields are
  std::vector<Block> Children(std::string_view field) const;  // of a repeated field
  std::string Which(std::string_view oneof) const;            // the field that is set, or ""

  void Add(std::string_view field, std::string message) const;
  // One of this block or inside it, found so far.
  bool HasMistake() const;
  // For what is absent: silent if the block has a mistake already, which may be the reason.
  void Missing(std::string message) const;

 private:
  const google::protobuf::FieldDescriptor* Find(std::string_view field) const;
  TextRange SpanOf(std::string_view field, int index) const;

  const google::protobuf::Message* message_;
  const Places* places_;
  Mistakes* mistakes_;
  std::string name_;
  TextRange span_;
};

// A parsed file: owns what its blocks point into.
class ParsedFile {
 public:
  // Adds all that the parser finds, and goes on behind a wrong value or an unknown field. Null if
  // nothing can be said about the rest of the file.
  static std::unique_ptr<ParsedFile> Parse(const SourceText& source, Mistakes& mistakes);
  ~ParsedFile();
  Block root() const;

 private:
  ParsedFile();
  std::unique_ptr<google::protobuf::Message> message_;
  Places places_;
  Mistakes* mistakes_ = nullptr;
  TextRange span_;
};

}  // namespace sumonce

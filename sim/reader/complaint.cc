#include "sim/reader/complaint.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/scenario.pb.h"
#include "sim/reader/mistakes.h"

namespace sumonce {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr size_t kMaxSaid = 400;
constexpr size_t kNone = std::string::npos;

bool IsSpace(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The `index`-th text in quotes, "" if there are fewer.
std::string Quoted(const std::string& said, int index) {
  size_t begin = 0;
  for (int quotes = 0; quotes < 2 * index + 1; ++quotes) {
    begin = said.find('"', begin);
    if (begin == kNone) return "";
    ++begin;
  }
  const size_t end = said.find('"', begin);
  return end == kNone ? "" : said.substr(begin, end - begin);
}

// The value that the parser could not take, "" if the complaint is of another kind.
std::string WrongValue(const std::string& said) {
  const auto starts = [&](const char* prefix) { return said.rfind(prefix, 0) == 0; };
  if (starts("Invalid value for boolean field")) return Quoted(said, 1);
  const size_t open = said.find('(');
  if (starts("Integer out of range") && open != kNone) {
    return said.substr(open + 1, said.find(')', open) - open - 1);
  }
  const size_t got = said.find(", got: ");
  return starts("Expected ") && got != kNone ? said.substr(got + 7) : "";
}

// Where `word` last begins at or before `offset`, as a word of its own; `offset` if nowhere.
size_t FindBack(const std::string& text, const std::string& word, size_t offset) {
  if (word.empty()) return offset;
  for (size_t at = text.rfind(word, offset); at != kNone;
       at = at == 0 ? kNone : text.rfind(word, at - 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !IsWord(text[at - 1]) || !IsWord(word[0]);
    if (begins && (end >= text.size() || !IsWord(text[end]) || !IsWord(word.back()))) return at;
  }
  return offset;
}

// The enum field of this name, searched through the schema; null if there is none.
const FieldDescriptor* EnumField(const Descriptor* type, const std::string& name) {
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->enum_type() && field->name() == name) return field;
    if (!field->message_type()) continue;
    if (const FieldDescriptor* found = EnumField(field->message_type(), name)) return found;
  }
  return nullptr;
}

std::string UnknownEnumValue(const std::string& value, const std::string& field_name) {
  const FieldDescriptor* field = EnumField(proto::Scenario::descriptor(), field_name);
  std::vector<std::string> names;
  for (int i = 0; field && i < field->enum_type()->value_count(); ++i) {
    const std::string& name = field->enum_type()->value(i)->name();
    if (name.find("UNSPECIFIED") == kNone) names.push_back(name);
  }
  return absl::StrCat(field_name, ": unknown value ", value, ", expected ", OneOf(names, 40),
                      DidYouMean(value, names));
}

std::string UnknownField(const std::string& type_name, const std::string& field_name) {
  const Descriptor* type =
      proto::Scenario::descriptor()->file()->pool()->FindMessageTypeByName(type_name);
  std::vector<std::string> names;
  for (int i = 0; type && i < type->field_count(); ++i) names.push_back(type->field(i)->name());
  return absl::StrCat("unknown field \"", field_name, "\" of ", type ? type->name() : type_name,
                      ", expected ", OneOf(names, 40), DidYouMean(field_name, names));
}

std::string WordAt(const std::string& text, size_t begin) {
  size_t end = begin;
  while (end < text.size() && IsWord(text[end])) ++end;
  return text.substr(begin, end - begin);
}

// Where the field begins whose value, or colon, stands at `at`: "name: value", "name value".
size_t FieldOf(const std::string& text, size_t at) {
  const auto skip_space = [&](size_t end) {
    while (end > 0 && IsSpace(text[end - 1])) --end;
    return end;
  };
  size_t begin = std::min(at, text.size());
  while (begin > 0 && !IsSpace(text[begin - 1]) && !std::strchr(":{}<>[],;#\"'", text[begin - 1])) {
    --begin;
  }
  size_t end = skip_space(begin);
  if (end > 0 && text[end - 1] == ':') end = skip_space(end - 1);
  size_t name = end;
  while (name > 0 && IsWord(text[name - 1])) --name;
  return name == end ? kNone : name;
}

// Behind the value that begins at `at`: a block in balanced brackets, a string or a word.
size_t EndOfValue(const std::string& text, size_t at) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      do {
        at += text[at] == '\\' ? 2 : 1;
      } while (at < text.size() && text[at] != c && text[at] != '\n');
      if (depth == 0) return std::min(at + 1, text.size());
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (std::strchr("{[<", c)) {
      ++depth;
    } else if (std::strchr("}]>", c)) {
      if (--depth <= 0) return depth < 0 ? at : at + 1;
    } else if (depth == 0 && (IsSpace(c) || c == ',' || c == ';')) {
      return at;
    }
  }
  return text.size();
}

std::string Blanked(std::string text, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if (text[i] != '\n') text[i] = ' ';
  }
  return text;
}

// Without the field that begins at `name`. Empty if that changes nothing.
std::string WithoutField(const std::string& text, size_t name) {
  if (name == kNone) return "";
  size_t end = name;
  while (end < text.size() && IsWord(text[end])) ++end;
  while (end < text.size() && (IsSpace(text[end]) || text[end] == ':')) ++end;
  std::string mended = Blanked(text, name, EndOfValue(text, end));
  return mended == text ? "" : mended;
}

// Names without the schema's package, and nothing endless from a file of garbage.
std::string Tidied(std::string said) {
  constexpr char kPackage[] = "sumonce.proto.";
  for (size_t at = said.find(kPackage); at != kNone; at = said.find(kPackage, at)) {
    said.erase(at, sizeof kPackage - 1);
  }
  return said.size() > kMaxSaid ? said.substr(0, kMaxSaid) + "..." : said;
}

// "Expected integer, got: many" of the field "steps" as "steps: many, expected integer".
std::string InUsersWords(const std::string& said, const std::string& value,
                         const std::string& field) {
  const auto starts = [&](const char* prefix) { return said.rfind(prefix, 0) == 0; };
  if (field.empty()) return said;
  if (starts("Expected \"{\", found")) return field + " is a block, expected " + field + " { ... }";
  if (starts("Expected \":\", found")) return field + " has no colon, expected " + field + ": ...";
  if (value.empty()) return field + ": " + said;
  if (starts("Invalid value for boolean")) return field + ": " + value + ", expected true or false";
  if (starts("Integer out of range"))
    return field + ": " + value + " is out of the integers' range";
  const size_t comma = said.find(", got: ");
  if (starts("Expected ") && comma != kNone) {
    const std::string wanted = said.substr(9, comma - 9);
    const char* plain = wanted == "integer"  ? "an integer"
                        : wanted == "double" ? "a number"
                        : wanted == "string" ? "text in quotes"
                                             : wanted.c_str();
    return absl::StrCat(field, ": ", value, ", expected ", plain);
  }
  return field + ": " + said;
}

// Where the block begins that the end of the file leaves open; the end if none is.
size_t OpenBlock(const std::string& text) {
  std::vector<size_t> open;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (text[at] == '"' || text[at] == '\'') {
      at = EndOfValue(text, at) - 1;
    } else if (text[at] == '{') {
      open.push_back(at);
    } else if (text[at] == '}' && !open.empty()) {
      open.pop_back();
    }
  }
  return open.empty() ? text.size() : open[0];
}

Understood Other(const std::string& text, const Complaint& complaint, const std::string& value) {
  const size_t at = complaint.offset;
  if (at >= text.size()) {
    return {OpenBlock(text), "this block has no end, expected \"}\"; close it", ""};
  }
  if (text[at] == '}' && complaint.said.rfind("Expected identifier", 0) == 0) {
    return {at, "\"}\" closes nothing, expected a field; take it out", Blanked(text, at, at + 1)};
  }
  const size_t name = FieldOf(text, at);
  const std::string field = name == kNone ? "" : WordAt(text, name);
  return {at, Tidied(InUsersWords(complaint.said, value, field)), WithoutField(text, name)};
}

}  // namespace

Understood Understand(const std::string& text, const Complaint& complaint) {
  const std::string& said = complaint.said;
  const auto starts = [&](const char* prefix) { return said.rfind(prefix, 0) == 0; };
  const std::string first = Quoted(said, 0);
  const std::string second = Quoted(said, 1);
  const size_t at_first = FindBack(text, first, complaint.offset);
  if (starts("Message type ")) {
    return {FindBack(text, second, complaint.offset), Tidied(UnknownField(first, second)), ""};
  }
  if (starts("Unknown enumeration value")) {
    return {at_first, Tidied(UnknownEnumValue(first, second)),
            WithoutField(text, FieldOf(text, at_first))};
  }
  if (starts("Non-repeated field ")) {
    return {at_first, first + " is given twice, expected once; take one away",
            WithoutField(text, at_first)};
  }
  if (starts("Field ") && said.find("another member of oneof") != kNone) {
    return {at_first, first + " beside " + second + ", expected one of them; take one away",
            WithoutField(text, at_first)};
  }
  const std::string value = WrongValue(said);
  return Other(text, {FindBack(text, value, complaint.offset), said}, value);
}

}  // namespace sumonce

// The text parser of Protocol Buffers, made to find more than the first mistake: an unknown field
// is skipped, and a field with a wrong value is blanked and the text parsed again.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <cctype>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/scenario.pb.h"
#include "sim/reader/block.h"

namespace sumonce {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

constexpr int kMaxRounds = 50;
constexpr size_t kMaxSaid = 300;

struct Complaint {
  size_t offset;
  std::string message;
};

class Collector : public google::protobuf::io::ErrorCollector {
 public:
  explicit Collector(const SourceText& source) : source_(source) {}
  void AddError(int line, int column, const std::string& message) override {
    errors.push_back({source_.Offset(line, column), message});
  }
  void AddWarning(int line, int column, const std::string& message) override {
    warnings.push_back({source_.Offset(line, column), message});
  }

  std::vector<Complaint> errors;
  std::vector<Complaint> warnings;

 private:
  const SourceText& source_;
};

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Where `word` last begins at or before `offset`, as a word of its own; npos if nowhere.
size_t FindBack(const std::string& text, const std::string& word, size_t offset) {
  for (size_t at = text.rfind(word, offset); at != text.npos;
       at = at == 0 ? text.npos : text.rfind(word, at - 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !IsWord(text[at - 1]) || !IsWord(word[0]);
    if (begins && (end >= text.size() || !IsWord(text[end]) || !IsWord(word.back()))) return at;
  }
  return text.npos;
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
    if (name.find("UNSPECIFIED") == name.npos) names.push_back(name);
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

// What the parser says, with the place it means and what to blank to go on.
struct Understood {
  size_t at;
  std::string message;
  std::optional<size_t> field;  // where the field begins that cannot be read
};

// The field whose value begins at `value`: "name: value".
std::optional<size_t> FieldOfValue(const std::string& text, size_t value) {
  const auto skip_space = [&](size_t end) {
    while (end > 0 && std::isspace(static_cast<unsigned char>(text[end - 1]))) --end;
    return end;
  };
  size_t end = skip_space(value);
  if (end == 0 || text[end - 1] != ':') return std::nullopt;
  end = skip_space(end - 1);
  size_t begin = end;
  while (begin > 0 && IsWord(text[begin - 1])) --begin;
  return begin == end ? std::nullopt : std::optional(begin);
}

// The `index`-th text in quotes, "" if there are fewer.
std::string Quoted(const std::string& said, int index) {
  size_t begin = 0;
  for (int quotes = 0; quotes < 2 * index + 1; ++quotes) {
    begin = said.find('"', begin);
    if (begin == said.npos) return "";
    ++begin;
  }
  const size_t end = said.find('"', begin);
  return end == said.npos ? "" : said.substr(begin, end - begin);
}

// The value that the parser could not take, "" if the complaint is of another kind.
std::string WrongValue(const std::string& said) {
  const auto starts = [&](const char* prefix) { return said.rfind(prefix, 0) == 0; };
  if (starts("Invalid value for boolean field")) return Quoted(said, 1);
  const size_t open = said.find('(');
  if (starts("Integer out of range") && open != said.npos) {
    return said.substr(open + 1, said.find(')', open) - open - 1);
  }
  const size_t got = said.find(", got: ");
  return starts("Expected ") && got != said.npos ? said.substr(got + 7) : "";
}

// Names without the schema's package, and nothing endless from a file of garbage.
std::string Tidied(std::string said) {
  constexpr char kPackage[] = "sumonce.proto.";
  for (size_t at = said.find(kPackage); at != said.npos; at = said.find(kPackage, at)) {
    said.erase(at, sizeof kPackage - 1);
  }
  return said.size() > kMaxSaid ? said.substr(0, kMaxSaid) + "..." : said;
}

// What the parser says, at the place it means, with the field to blank to go on.
Understood Understand(const std::string& text, const Complaint& complaint) {
  const std::string& said = complaint.message;
  const auto starts = [&](const char* prefix) { return said.rfind(prefix, 0) == 0; };
  const auto back = [&](const std::string& word) {
    const size_t at = word.empty() ? text.npos : FindBack(text, word, complaint.offset);
    return at == text.npos ? complaint.offset : at;
  };
  const std::string first = Quoted(said, 0);
  const std::string second = Quoted(said, 1);
  if (starts("Message type ")) return {back(second), UnknownField(first, second), {}};
  if (starts("Unknown enumeration value")) {
    const size_t at = back(first);
    return {at, UnknownEnumValue(first, second), FieldOfValue(text, at)};
  }
  if (starts("Non-repeated field ")) {
    return {back(first), first + " is given twice, expected once; take one away", back(first)};
  }
  if (starts("Field ") && said.find("another member of oneof") != said.npos) {
    return {back(first), first + " beside " + second + ", expected one of them; take one away",
            back(first)};
  }
  if (const std::string value = WrongValue(said); !value.empty()) {
    return {back(value), said, FieldOfValue(text, back(value))};
  }
  return {complaint.offset, said, {}};
}

// Behind the value that begins at `at`: a block in balanced brackets, a string or a word.
size_t EndOfValue(const std::string& text, size_t at) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      do {
        if (text[at] == '\\') ++at;
        ++at;
      } while (at < text.size() && text[at] != c && text[at] != '\n');
      if (depth == 0) return std::min(at + 1, text.size());
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '{' || c == '[' || c == '<') {
      ++depth;
    } else if (c == '}' || c == ']' || c == '>') {
      if (--depth <= 0) return depth < 0 ? at : at + 1;
    } else if (depth == 0 &&
               (std::isspace(static_cast<unsigned char>(c)) || c == ',' || c == ';')) {
      return at;
    }
  }
  return text.size();
}

// The text with the field at `at` made space, so that all else keeps its place.
std::string Blanked(std::string text, size_t at) {
  size_t end = at;
  while (end < text.size() && IsWord(text[end])) ++end;
  while (end < text.size() &&
         (std::isspace(static_cast<unsigned char>(text[end])) || text[end] == ':')) {
    ++end;
  }
  end = EndOfValue(text, end);
  for (size_t i = at; i < end; ++i) {
    if (text[i] != '\n') text[i] = ' ';
  }
  return text;
}

void RecordPlaces(const Message& message, const TextFormat::ParseInfoTree& tree,
                  const SourceText& source, Places& places) {
  const Descriptor* type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    const bool repeated = field->is_repeated();
    const bool absent = field->has_presence() && !message.GetReflection()->HasField(message, field);
    const int count = repeated ? message.GetReflection()->FieldSize(message, field) : !absent;
    for (int k = 0; k < count; ++k) {
      const auto range = tree.GetLocationRange(field, repeated ? k : -1);
      if (range.start.line < 0) continue;
      places[{&message, field->number(), k}] = {
          source.At(source.Offset(range.start.line, range.start.column)),
          source.At(source.Offset(range.end.line, range.end.column))};
      if (!field->message_type()) continue;
      const auto& reflection = *message.GetReflection();
      const Message& child = repeated ? reflection.GetRepeatedMessage(message, field, k)
                                      : reflection.GetMessage(message, field);
      const auto* nested = tree.GetTreeForNested(field, repeated ? k : -1);
      if (nested) RecordPlaces(child, *nested, source, places);
    }
  }
}

}  // namespace

ParsedFile::ParsedFile() = default;
ParsedFile::~ParsedFile() = default;

Block ParsedFile::root() const {
  return Block(message_.get(), &places_, mistakes_, "scenario", span_);
}

std::unique_ptr<ParsedFile> ParsedFile::Parse(const SourceText& source, Mistakes& mistakes) {
  std::string text = source.text();
  for (int round = 0; round < kMaxRounds; ++round) {
    std::unique_ptr<ParsedFile> file(new ParsedFile);
    file->message_ = std::make_unique<proto::Scenario>();
    file->mistakes_ = &mistakes;
    file->span_ = {source.At(0), source.At(source.text().size())};
    Collector collector(source);
    TextFormat::ParseInfoTree tree;
    TextFormat::Parser parser;
    parser.RecordErrorsTo(&collector);
    parser.WriteLocationsTo(&tree);
    parser.AllowUnknownField(true);
    parser.SetRecursionLimit(64);
    const bool parsed = parser.ParseFromString(text, file->message_.get());
    for (const Complaint& warning : collector.warnings) {
      const Understood understood = Understand(text, warning);
      mistakes.Add(source.At(understood.at), Tidied(understood.message));
    }
    std::optional<size_t> blank;
    for (const Complaint& error : collector.errors) {
      const Understood understood = Understand(text, error);
      mistakes.Add(source.At(understood.at), Tidied(understood.message));
      blank = understood.field;
    }
    if (parsed) {
      RecordPlaces(*file->message_, tree, source, file->places_);
      return file;
    }
    if (!blank) return nullptr;
    text = Blanked(std::move(text), *blank);
  }
  return nullptr;
}

}  // namespace sumonce

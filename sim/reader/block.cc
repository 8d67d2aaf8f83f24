#include "sim/reader/block.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const FieldDescriptor* Block::Find(std::string_view field) const {
  const FieldDescriptor* found = message_->GetDescriptor()->FindFieldByName(std::string(field));
  SUMONCE_CHECK(found != nullptr) << message_->GetTypeName() << " has no field " << field;
  return found;
}

TextRange Block::SpanOf(std::string_view field, int index) const {
  // Of a list in brackets the parser notes the first value only.
  for (; index >= 0; --index) {
    const auto found = places_->find({message_, Find(field)->number(), index});
    if (found != places_->end()) return found->second;
  }
  return span_;
}

bool Block::Given(std::string_view field) const {
  return places_->count({message_, Find(field)->number(), 0}) > 0;
}

Location Block::At(std::string_view field, int index) const { return SpanOf(field, index).begin; }

bool Block::Flag(std::string_view field) const {
  return message_->GetReflection()->GetBool(*message_, Find(field));
}

int64_t Block::Int(std::string_view field, int64_t fallback, int64_t least, int64_t most) const {
  if (!Given(field)) return fallback;
  const int64_t value = message_->GetReflection()->GetInt32(*message_, Find(field));
  if (value >= least && value <= most) return value;
  const std::string expected =
      value < least ? absl::StrCat("at least ", least) : absl::StrCat("at most ", most);
  Add(field, absl::StrCat(ToAbsl(field), ": ", value, ", expected ", expected));
  return fallback;
}

uint64_t Block::Unsigned(std::string_view field, uint64_t fallback) const {
  if (!Given(field)) return fallback;
  return message_->GetReflection()->GetUInt64(*message_, Find(field));
}

double Block::Number(std::string_view field, double fallback, double least, double most) const {
  if (!Given(field)) return fallback;
  const double value = message_->GetReflection()->GetDouble(*message_, Find(field));
  if (std::isfinite(value) && value >= least && value <= most) return value;
  std::string expected = "a finite number";
  if (value < least) expected = absl::StrCat("at least ", least);
  if (value > most && std::isfinite(value)) expected = absl::StrCat("at most ", most);
  Add(field, absl::StrCat(ToAbsl(field), ": ", value, ", expected ", expected));
  return fallback;
}

std::string Block::Text(std::string_view field) const {
  std::string text = message_->GetReflection()->GetString(*message_, Find(field));
  if (InvalidUtf8(text) == std::string::npos && text.find('\0') == std::string::npos) return text;
  Add(field, absl::StrCat(ToAbsl(field), ": \"", absl::CHexEscape(text),
                          "\" is no text, expected UTF-8 without zero bytes"));
  return "";
}

std::vector<std::string> Block::Texts(std::string_view field) const {
  const FieldDescriptor* found = Find(field);
  std::vector<std::string> texts;
  for (int i = 0; i < message_->GetReflection()->FieldSize(*message_, found); ++i) {
    texts.push_back(absl::Utf8SafeCHexEscape(
        message_->GetReflection()->GetRepeatedString(*message_, found, i)));
  }
  return texts;
}

std::vector<int> Block::Ints(std::string_view field) const {
  const FieldDescriptor* found = Find(field);
  std::vector<int> values;
  for (int i = 0; i < message_->GetReflection()->FieldSize(*message_, found); ++i) {
    values.push_back(message_->GetReflection()->GetRepeatedInt32(*message_, found, i));
  }
  return values;
}

std::string Block::EnumName(std::string_view field) const {
  const FieldDescriptor* found = Find(field);
  const int number = message_->GetReflection()->GetEnumValue(*message_, found);
  const auto* value = found->enum_type()->FindValueByNumber(number);
  return value ? value->name() : std::to_string(number);
}

Block Block::Child(std::string_view field) const {
  const Message& child = message_->GetReflection()->GetMessage(*message_, Find(field));
  return Block(&child, places_, mistakes_, std::string(field), SpanOf(field, 0));
}

std::vector<Block> Block::Children(std::string_view field) const {
  const FieldDescriptor* found = Find(field);
  std::vector<Block> children;
  for (int i = 0; i < message_->GetReflection()->FieldSize(*message_, found); ++i) {
    const Message& child = message_->GetReflection()->GetRepeatedMessage(*message_, found, i);
    children.emplace_back(&child, places_, mistakes_, std::string(field), SpanOf(field, i));
  }
  return children;
}

std::string Block::Which(std::string_view oneof) const {
  const auto* found = message_->GetDescriptor()->FindOneofByName(std::string(oneof));
  SUMONCE_CHECK(found != nullptr) << message_->GetTypeName() << " has no oneof " << oneof;
  const FieldDescriptor* set = message_->GetReflection()->GetOneofFieldDescriptor(*message_, found);
  return set ? set->name() : "";
}

void Block::Add(std::string_view field, std::string message) const {
  mistakes_->Add(At(field), std::move(message));
}

bool Block::HasMistake() const { return mistakes_->Between(span_.begin, span_.end); }

void Block::Missing(std::string message) const {
  if (!HasMistake()) mistakes_->Add(at(), std::move(message));
}

}  // namespace sumonce

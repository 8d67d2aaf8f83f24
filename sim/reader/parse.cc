// The text parser of Protocol Buffers, made to find more than the first mistake: an unknown field
// is skipped, and behind any other mistake the text is mended and parsed again.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include "proto/scenario.pb.h"
#include "sim/reader/block.h"
#include "sim/reader/complaint.h"

namespace sumonce {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

constexpr int kMaxRounds = 100;

// Places are those of the file, which mended texts keep.
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
  for (int round = 0; round < kMaxRounds && !text.empty(); ++round) {
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
    const bool parsed = parser.ParseFromString(text, file->message_.get());
    const Understood error = parsed ? Understood{.at = text.size(), .message = "", .mended = ""}
                                    : Understand(text, collector.errors.at(0));
    for (const Complaint& warning : collector.warnings) {
      const Understood understood = Understand(text, warning);
      // What follows an error may follow from it.
      if (understood.at < error.at) mistakes.Add(source.At(understood.at), understood.message);
    }
    if (parsed) {
      RecordPlaces(*file->message_, tree, source, file->places_);
      return file;
    }
    mistakes.Add(source.At(error.at), error.message);
    text = error.mended;
  }
  return nullptr;
}

}  // namespace sumonce

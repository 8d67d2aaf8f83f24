#include "sim/scenario_reader.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sim/reader/reading.h"
#include "sim/reader/source_text.h"

namespace sumonce {
namespace {

// What a check compares has been read before.
void ReadParts(const Block& root, Reading& reading) {
  reading.scenario.sequence_parallel = root.Flag("sequence_parallel");
  ReadMesh(root, reading);
  ReadModel(root, reading);
  ReadLora(root, reading);
  ReadData(root, reading);
  ReadTraining(root, reading);
  ReadEdits(root, reading);
  ReadExpectations(root, reading);
  CheckSizes(root, reading);
  CheckExact(root, reading);
  CheckGlobs(root, reading);
  CheckFiles(root, reading);
}

}  // namespace

std::string Format(const Mistake& mistake) {
  const Location& at = mistake.location;
  const std::string place = at.line > 0 ? absl::StrCat(":", at.line, ":", at.column) : "";
  return absl::StrCat(at.file, place, ": error: ", mistake.message);
}

ReadResult ReadScenario(const std::string& path, const std::string& name,
                        const Overrides& overrides) {
  const absl::StatusOr<std::string> text = ReadFileText(path);
  if (text.ok()) return ReadScenarioText(*text, path, name, overrides);
  ReadResult result;
  result.scenario.name = name;
  result.scenario.file = path;
  result.mistakes = {
      {.location = {.file = path}, .message = std::string(FromAbsl(text.status().message()))}};
  return result;
}

ReadResult ReadScenarioText(const std::string& text, const std::string& path,
                            const std::string& name, const Overrides& overrides) {
  Mistakes mistakes;
  Reading reading = {.overrides = &overrides, .mistakes = &mistakes};
  reading.scenario.name = name;
  reading.scenario.file = path;
  const SourceText source(path, text);
  if (source.CheckIsText(mistakes)) {
    const std::unique_ptr<ParsedFile> file = ParsedFile::Parse(source, mistakes);
    if (file) ReadParts(file->root(), reading);
    reading.globs.clear();
  }
  return {std::move(reading.scenario), mistakes.Sorted()};
}

}  // namespace sumonce

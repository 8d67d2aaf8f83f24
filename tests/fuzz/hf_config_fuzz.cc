// config.json and adapter_config.json: mistakes, or a text that the scenario reader reads without
// a mistake of syntax.
#include "sim/hf_config.h"
#include "tests/fuzz/file_of.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const sumonce::fuzz::FileOf file(data, size);
  const sumonce::HfScenario read = sumonce::ScenarioOfHfConfig(
      {.config = file.path(), .adapter = size % 2 == 0 ? file.path() : "", .mesh = {.tp = 2}});
  if (!read.mistakes.empty()) return 0;
  const sumonce::ReadResult result = sumonce::ReadScenarioText(read.text, "fuzz", "fuzz", {});
  for (const sumonce::Mistake& mistake : result.mistakes) {
    if (mistake.message.find("unknown field") != std::string::npos) __builtin_trap();
  }
  return 0;
}

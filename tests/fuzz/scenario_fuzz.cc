// The scenario reader, and what lists a model's parameters: any text gives mistakes or a scenario.
#include <string>

#include "sim/scenario_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const sumonce::ReadResult result = sumonce::ReadScenarioText(text, "fuzz", "fuzz", {});
  for (const sumonce::Mistake& mistake : result.mistakes) {
    if (Format(mistake).empty()) __builtin_trap();
  }
  return 0;
}

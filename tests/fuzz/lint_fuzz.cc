// A manifest in JSON all the way through lint: its modules onto layers, proved, stated, and written
// as a scenario. Whatever it names, nothing may stop the program.
#include <string>
#include <vector>

#include "capture/lint/class_hints.h"
#include "capture/lint/lint.h"
#include "capture/lint/scenario_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sumonce;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto manifest = capture::ParseManifestJson(text, "fuzz");
  if (!manifest.ok()) return 0;
  const std::vector<capture::Manifest> manifests = {*manifest};
  const auto statements = lint::StateParameters(manifests, {});
  if (!statements.ok()) return 0;
  const ScenarioResult result = lint::LintStatements(*statements, "fuzz", {});
  if (result.outcome == RunOutcome::kSkip && result.skip_reason.empty()) __builtin_trap();
  const lint::Faults faults = lint::FaultsOf(*statements);
  const auto scenario = lint::ScenarioText(*statements, faults, "fuzz");
  if (!scenario.ok() && scenario.status().message().empty()) __builtin_trap();
  static_cast<void>(lint::HintsOf(*statements));
  return 0;
}

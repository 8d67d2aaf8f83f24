#include "cli/save_capture.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "capture/write/save_run.h"
#include "layers/decoder/decoder.h"
#include "sim/simulator.h"
#include "sim/weights.h"

namespace sumonce {
namespace {

// The run's own failure is no mistake of the user.
struct Saved {
  absl::Status run;
  absl::Status written;
};

Saved Save(const Scenario& scenario, const std::string& dir, bool overwrite) {
  Model model(EffectiveModel(scenario));
  const absl::StatusOr<Weights> start = StartWeights(scenario, model.params());
  if (!start.ok()) return {.run = start.status(), .written = {}};
  const SimResult result = Simulate(scenario, scenario.defects, *start, SimOptions());
  if (!result.status.ok()) return {.run = result.status, .written = {}};
  return {.run = {},
          .written = capture::SaveRun(
              {.scenario = &scenario, .record = &result.record, .name = scenario.name},
              absl::StrCat(dir, "/", scenario.name), overwrite)};
}

}  // namespace

void SaveCaptures(const std::string& dir, bool overwrite, Selection& selection,
                  std::ostream& talk) {
  if (!selection.mistakes.empty()) return;
  for (const SelectedRun& run : selection.runs) {
    const Saved saved = Save(run.scenario, dir, overwrite);
    if (!saved.run.ok()) {
      talk << "sumonce run --save-capture: " << run.scenario.name
           << " ends without gradients: " << saved.run.message() << '\n';
    } else if (absl::IsUnimplemented(saved.written)) {
      talk << "sumonce run --save-capture: " << run.scenario.name
           << " is not saved: " << saved.written.message() << '\n';
    } else if (!saved.written.ok()) {
      selection.mistakes.push_back(
          absl::StrCat("sumonce: error: --save-capture: ", saved.written.message()));
    }
  }
}

}  // namespace sumonce

#include "cli/save_capture.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "capture/write/save_run.h"
#include "cli/memory_limit.h"
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

SavedCounts SaveCaptures(const SaveCaptureOptions& options, Selection& selection,
                         std::ostream& talk) {
  SavedCounts counts;
  if (!selection.mistakes.empty()) return counts;
  for (const SelectedRun& run : selection.runs) {
    const auto not_saved = [&](const std::string& reason) {
      ++counts.not_saved;
      talk << "sumonce run --save-capture: " << run.scenario.name << " is not saved: " << reason
           << '\n';
    };
    if (const std::string large = WhyTooLarge(run.scenario, options.memory_limit); !large.empty()) {
      not_saved(large);
      continue;
    }
    const Saved saved = Save(run.scenario, options.dir, options.overwrite);
    if (!saved.run.ok()) {
      not_saved(absl::StrCat("it ends without gradients: ", saved.run.message()));
    } else if (absl::IsUnimplemented(saved.written)) {
      not_saved(std::string(saved.written.message()));
    } else if (!saved.written.ok()) {
      selection.mistakes.push_back(
          absl::StrCat("sumonce: error: --save-capture: ", saved.written.message()));
    } else {
      ++counts.saved;
    }
  }
  return counts;
}

}  // namespace sumonce

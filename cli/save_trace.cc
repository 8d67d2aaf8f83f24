#include "cli/save_trace.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "trace/record/record_step.h"
#include "trace/record/write_traces.h"

namespace sumonce {
namespace {

absl::Status SaveTrace(const Scenario& scenario, const std::string& dir, bool overwrite) {
  if (const std::string why = trace::WhyNotRecorded(scenario); !why.empty())
    return absl::UnimplementedError(why);
  const Scenario recorded = trace::AsRecorded(scenario);
  const auto set = trace::RecordStep(recorded, recorded.defects);
  if (!set.ok()) return absl::UnimplementedError(set.status().message());
  return trace::WriteTraces(*set, dir, overwrite);
}

}  // namespace

void SaveTraces(const std::string& dir, bool overwrite, Selection& selection, std::ostream& talk) {
  if (!selection.mistakes.empty()) return;
  std::set<std::string> saved;
  for (const SelectedRun& run : selection.runs) {
    // The traces of "lora/pr_173[tp=8]" are those of the file.
    const std::string name = run.scenario.name.substr(0, run.scenario.name.find('['));
    if (!saved.insert(name).second) continue;
    const absl::Status status = SaveTrace(run.scenario, absl::StrCat(dir, "/", name), overwrite);
    if (status.code() == absl::StatusCode::kUnimplemented) {
      talk << "sumonce run --save-trace: " << name << " is not recorded: " << status.message()
           << '\n';
    } else if (!status.ok()) {
      selection.mistakes.push_back(std::string(status.message()));
    }
  }
}

}  // namespace sumonce

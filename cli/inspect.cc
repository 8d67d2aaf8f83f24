// sumonce inspect: what an exported PEFT adapter still shows of how it was trained.
#include "capture/inspect/inspect.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/file_loop.h"
#include "cli/report_loop.h"
#include "cli/verb.h"

namespace sumonce {
namespace {

struct InspectFlags {
  std::vector<std::string> dirs;
  OutputFlags output;
};

int Inspect(const InspectFlags& flags, Context& context) {
  const auto judge = [&](const std::string& dir) -> absl::StatusOr<ScenarioResult> {
    SUMONCE_ASSIGN_OR_RETURN(const inspect::AdapterReport report, inspect::InspectAdapter(dir));
    ScenarioResult result = inspect::ToResult(report);
    result.reproduce = absl::StrCat(ShellQuoted(context.program), " inspect ", ShellQuoted(dir));
    return result;
  };
  return ReportFiles(flags.dirs, {.output = flags.output, .judge = judge}, context);
}

}  // namespace

VerbAction DeclareInspect(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  app.add_option("adapters", flags->dirs,
                 "Folders with adapter_config.json and adapter_model.safetensors")
      ->type_name("ADAPTER_DIR")
      ->required();
  AddOutput(app, flags->output);
  return [flags](Context& context) { return Inspect(*flags, context); };
}

}  // namespace sumonce

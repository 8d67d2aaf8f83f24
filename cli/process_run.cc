#include "cli/process_run.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/report_loop.h"
#include "comm/errors.h"

namespace sumonce {
namespace {

using Clock = std::chrono::steady_clock;

// What this process would print before it runs anything.
std::string Mistakes(const Selection& selection) {
  std::string mistakes = selection.nothing;
  for (const std::string& mistake : selection.mistakes) {
    absl::StrAppend(&mistakes, mistakes.empty() ? "" : "\n", mistake);
  }
  return mistakes;
}

int ExitCodeOf(const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) return kUsage;
  return KindOf(status) == RunFailure::kNone ? kInternalError : kDiffers;
}

int Lead(const ProcessRun& run, const RemoteScenarios& remote, const absl::Status& agreed,
         Context& context) {
  if (!agreed.ok()) {
    context.io.err << "sumonce: error: " << agreed.message() << '\n';
    return ExitCodeOf(agreed);
  }
  const int status = run.lead(remote);
  // If that fails the others are gone, and the status tells what is known.
  (void)EndService(*remote.group, status);
  return status;
}

int Serve(const ProcessRun& run, const RemoteScenarios& remote, const absl::Status& agreed) {
  if (!agreed.ok()) return ExitCodeOf(agreed);
  // Whether to go on after a signal is for process 0 to say.
  const InterruptWatch watch;
  SimOptions options = {.transport = run.transport.name, .executor = {}};
  options.now_us = [start = Clock::now()] {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  const absl::StatusOr<int> status = ServeSimulations(remote, options);
  return status.ok() ? *status : ExitCodeOf(status.status());
}

}  // namespace

int RunOnProcesses(const ProcessRun& run, Context& context) {
  const absl::StatusOr<ProcessGroup*> group = run.transport.processes();
  if (!group.ok()) {
    context.io.err << "sumonce: error: " << group.status().message() << '\n';
    return kInternalError;
  }
  (*group)->SetTimeLimit(run.time_limit_s);
  RemoteScenarios remote{.group = *group, .scenarios = {}};
  for (const SelectedRun& selected : run.selection.runs)
    remote.scenarios.push_back(&selected.scenario);
  const absl::Status agreed = AgreeOnScenarios(remote, Mistakes(run.selection));
  return (*group)->rank() == 0 ? Lead(run, remote, agreed, context) : Serve(run, remote, agreed);
}

std::string TooFewProcesses(const Scenario& scenario, const ProcessGroup& group,
                            const std::string& program) {
  const int ranks = scenario.mesh.world_size();
  if (ranks <= group.size()) return "";
  return absl::StrCat("its mesh has ", ranks, " ranks, and there ",
                      group.size() == 1 ? "is 1 process" : "are ",
                      group.size() == 1 ? "" : absl::StrCat(group.size(), " processes"),
                      "; start as many: mpirun -np ", ranks, " ", ShellQuoted(program), " run ",
                      ShellQuoted(scenario.file), " --comm mpi");
}

}  // namespace sumonce

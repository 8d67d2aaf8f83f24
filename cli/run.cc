// sumonce run: simulates, proves and compares.
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/cost_flags.h"
#include "cli/exit_code.h"
#include "cli/flags.h"
#include "cli/memory_limit.h"
#include "cli/process_run.h"
#include "cli/report_loop.h"
#include "cli/save_capture.h"
#include "cli/save_trace.h"
#include "cli/selection.h"
#include "cli/transport_flags.h"
#include "cli/verb.h"
#include "comm/transport.h"
#include "verify/export_check.h"

namespace sumonce {
namespace {

constexpr uint64_t kMaxTimeout = 86'400;
constexpr uint64_t kMaxReruns = 100'000;

struct RunFlags {
  SelectionFlags selection;
  OutputFlags output;
  TransportFlags transport;
  RunnerOptions runner;
  CostFlags cost;
  std::string save_trace;    // a folder; empty: no traces
  std::string save_capture;  // a folder; empty: no captures
  uint64_t timeout_s = 60;   // of transports whose ranks are processes
  int64_t memory_limit = 0;  // bytes; set with the flag's default
};

// What a pasted line needs to show the same: the file, what the flags set over it, and how it was
// run.
std::string ReplayLine(const std::string& program, const SelectedRun& run,
                       const RunnerOptions& options) {
  Overrides overrides = run.overrides;
  overrides.seed = run.scenario.seed;
  const bool processes = (*Transports().Find(options.transport))->processes != nullptr;
  std::string line = absl::StrCat(
      processes ? absl::StrCat("mpirun -np ", run.scenario.mesh.world_size(), " ") : "",
      ShellQuoted(program), " run ", ShellQuoted(run.scenario.file), OverrideFlags(overrides),
      " --schedule ", options.executor.schedule);
  const RunnerOptions defaults;
  if (options.executor.kind != defaults.executor.kind)
    absl::StrAppend(&line, " --executor ", ToAbsl(Name(options.executor.kind)));
  if (options.transport != defaults.transport)
    absl::StrAppend(&line, " --comm ", options.transport);
  if (options.native_sums) absl::StrAppend(&line, " --native-sums");
  if (options.reruns > 0) absl::StrAppend(&line, " --reruns ", options.reruns);
  return line;
}

bool KillsARank(const Scenario& scenario) {
  return std::any_of(scenario.defects.begin(), scenario.defects.end(), [](const Edit& edit) {
    const auto* communication = std::get_if<CommunicationEdit>(&edit.kind);
    return communication && communication->fault.kind == FaultKind::kKilled;
  });
}

// Adapters that exports would meet in their place, before anything runs.
void CheckExports(const RunnerOptions& options, Selection& selection) {
  if (options.export_dir.empty()) return;
  std::error_code made;
  std::filesystem::create_directories(options.export_dir, made);
  if (made) {
    selection.mistakes.push_back(absl::StrCat("sumonce: error: --export-dir ", options.export_dir,
                                              ": cannot be made: ", made.message(),
                                              "; give a directory that can be written"));
    return;
  }
  if (options.overwrite) return;
  for (const SelectedRun& run : selection.runs) {
    if (!run.scenario.export_adapter) continue;
    for (const std::string& name : {run.scenario.name, run.scenario.name + "@cured"}) {
      const std::string folder = ExportFolder(options.export_dir, name);
      std::error_code error;
      if (!std::filesystem::exists(folder, error)) continue;
      selection.mistakes.push_back(absl::StrCat(
          "sumonce: error: ", folder,
          ": is there already; give another --export-dir, or --force to overwrite it"));
    }
  }
}

int Run(const RunFlags& flags, Context& context) {
  RunnerOptions options = flags.runner;
  options.transport = flags.transport.name;
  options.executor = flags.transport.executor;
  options.native_sums = flags.transport.native_sums;
  options.overwrite = flags.output.force;
  for (const FormatSpec& spec : flags.output.formats)
    options.record_calls |= spec.format->needs_calls;
  if (options.executor.kind == ExecutorKind::kThreads && options.executor.schedule != 0) {
    context.io.err << "sumonce run: --schedule " << options.executor.schedule
                   << " with --executor threads: the system orders threads, expected --executor "
                      "fibers, which replay a schedule\n";
    return kUsage;
  }
  const Transport& transport = **Transports().Find(options.transport);
  const absl::Status available = transport.probe();
  absl::StatusOr<std::unique_ptr<CureCosts>> costs = CureCosts::Create(flags.cost);
  if (!costs.ok()) {
    context.io.err << "sumonce run: " << FromAbsl(costs.status().message()) << '\n';
    return kUsage;
  }
  Selection selection = Select(flags.selection);
  const auto reason_to_skip = [&](const Scenario& scenario) -> std::string {
    if (!available.ok()) return std::string(FromAbsl(available.message()));
    if (std::string large = WhyTooLarge(scenario, flags.memory_limit); !large.empty()) return large;
    if (!options.remote) {
      return std::string(FromAbsl(CanRun(transport, scenario.mesh.world_size()).message()));
    }
    if (std::string gone = WhyProcessesAreGone(*options.remote); !gone.empty()) return gone;
    if (selection.runs.size() > 1 && KillsARank(scenario)) {
      return "it kills a process and so ends the run of all: run it by itself";
    }
    return TooFewProcesses(scenario, *options.remote->group, context.program);
  };
  const auto judge = [&](const SelectedRun& run) -> std::vector<ScenarioResult> {
    const std::string reason = reason_to_skip(run.scenario);
    if (!reason.empty()) return {SkippedResult(run.scenario, run.scenario.name, reason)};
    std::vector<ScenarioResult> results = context.engine.run(run.scenario, options);
    for (ScenarioResult& result : results)
      result.reproduce = ReplayLine(context.program, run, options);
    if (!flags.cost.asked) return results;
    const absl::Status costed = (*costs)->AddTo(run.scenario, results);
    if (!costed.ok()) context.io.err << "sumonce run --cost: " << costed.message() << '\n';
    return results;
  };
  const auto report = [&] {
    CheckExports(options, selection);
    if (!flags.save_trace.empty())
      SaveTraces(flags.save_trace, flags.output.force, selection, context.io.err);
    SavedCounts captures;
    if (!flags.save_capture.empty()) {
      captures = SaveCaptures({.dir = flags.save_capture,
                               .overwrite = flags.output.force,
                               .memory_limit = flags.memory_limit},
                              selection, context.io.err);
    }
    return ReportAll(selection, {.output = flags.output, .judge = judge, .captures = captures},
                     context);
  };
  if (!available.ok() || !transport.processes) return report();
  const auto lead = [&](const RemoteScenarios& remote) {
    options.remote = &remote;
    return report();
  };
  return RunOnProcesses({.transport = transport,
                         .selection = selection,
                         .time_limit_s = static_cast<double>(flags.timeout_s),
                         .lead = lead},
                        context);
}

void AddExport(CLI::App& app, RunnerOptions& options) {
  app.add_option("--export-dir", options.export_dir,
                 "Keep the adapters that scenarios export below this directory")
      ->type_name("DIR");
}

void AddSaveTrace(CLI::App& app, RunFlags& flags) {
  app.add_option("--save-trace", flags.save_trace,
                 "Also write each scenario's step, at tp 1, 2 and 4, as traces below this "
                 "directory, for prove --trace")
      ->type_name("DIR");
}

void AddSaveCapture(CLI::App& app, RunFlags& flags) {
  app.add_option("--save-capture", flags.save_capture,
                 "Also write each scenario's ranks, and the unsharded reference, as captures below "
                 "this directory, for audit")
      ->type_name("DIR");
}

void AddReruns(CLI::App& app, RunnerOptions& options) {
  AddNumber(app, "--reruns",
            "Run each scenario so many times more, under other schedules (fibers): results that "
            "are not the same to the bit are NONDETERMINISTIC",
            [&options](uint64_t reruns) {
              if (reruns > kMaxReruns)
                throw CLI::ValidationError("--reruns",
                                           absl::StrCat(reruns, ": expected at most ", kMaxReruns));
              options.reruns = static_cast<int>(reruns);
            });
}

void AddProcesses(CLI::App& app, RunFlags& flags) {
  AddNumber(app, "--timeout",
            "Seconds after which a process that neither answers nor goes on is lost (60); for "
            "transports with a process per rank",
            [&flags](uint64_t seconds) {
              if (seconds < 1 || seconds > kMaxTimeout)
                throw CLI::ValidationError("--timeout", absl::StrCat(seconds, ": expected 1 to ",
                                                                     kMaxTimeout, " seconds"));
              flags.timeout_s = seconds;
            });
}

}  // namespace

VerbAction DeclareRun(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  AddPaths(app, flags->selection);
  AddFilter(app, flags->selection);
  AddAxes(app, flags->selection);
  AddSeed(app, flags->selection);
  AddTransport(app, flags->transport);
  AddReruns(app, flags->runner);
  AddExport(app, flags->runner);
  AddSaveTrace(app, *flags);
  AddSaveCapture(app, *flags);
  AddProcesses(app, *flags);
  AddMemoryLimit(app, flags->memory_limit);
  AddCost(app, flags->cost);
  AddOutput(app, flags->output);
  return [flags](Context& context) { return Run(*flags, context); };
}

}  // namespace sumonce

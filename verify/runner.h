// The main path: a scenario in, everything known about it out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "sim/scenario.h"
#include "verify/verdict.h"

namespace sumonce {

struct RemoteScenarios;

struct RunnerOptions {
  std::string transport = "in_process";
  ExecutorOptions executor;
  bool native_sums = false;                 // as RunOptions
  const RemoteScenarios* remote = nullptr;  // as SimOptions
  std::string
      export_dir;  // adapters of export_adapter scenarios are written below it; empty: a temporary
  bool overwrite = false;
  int reruns = 0;             // how often each scenario is run again, for results that differ
  bool record_calls = false;  // of each result's run, into ScenarioResult::calls
};

// Simulates, proves, compares, diagnoses, tries the cures: the scenario as written and, if it has a
// defect, its cured twin. The results point into `scenario`.
std::vector<ScenarioResult> RunScenario(const Scenario& scenario, const RunnerOptions& options);

// The result of a scenario, or of its cured twin, that does not run.
ScenarioResult SkippedResult(const Scenario& scenario, std::string name, std::string reason);

// Why nothing more can run over these processes; empty: all are there.
std::string WhyProcessesAreGone(const RemoteScenarios& remote);

// The static verdicts only: all that is needed is the scenario's structure.
std::vector<ScenarioResult> ProveScenario(const Scenario& scenario);

}  // namespace sumonce

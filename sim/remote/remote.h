// Simulations whose ranks are processes (Transport::processes). Every process reads its own files
// and selects the same scenarios; process 0 leads: each Simulate of its is a job that the others
// serve, run their rank of, and report back to it, parameter by parameter.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "sim/simulator.h"

namespace sumonce {

// The processes, and the scenarios that all of them selected, in one order. Scenarios are told
// apart by their address.
struct RemoteScenarios {
  ProcessGroup* group = nullptr;
  std::vector<const Scenario*> scenarios;
};

// Collective. Whether all processes read the same: scenarios, sizes, seeds, and the contents of
// every file that these name. `mistakes`: what this process found wrong with its own. The status is
// the same on all: InvalidArgument names the processes that differ from process 0, and in what.
absl::Status AgreeOnScenarios(const RemoteScenarios& remote, const std::string& mistakes);

// On process 0: one run. The record is that of all ranks.
SimResult SimulateOverProcesses(const Scenario& scenario, std::span<const Edit> edits,
                                const Weights& start, const SimOptions& options);

// On process 0: the others' ServeSimulations return `exit_status`.
absl::Status EndService(ProcessGroup& group, int exit_status);

// On the others: serves jobs until the service ends. An error: the group failed.
absl::StatusOr<int> ServeSimulations(const RemoteScenarios& remote, const SimOptions& options);

}  // namespace sumonce

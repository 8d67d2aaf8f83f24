// The verb `run` over a transport whose ranks are processes: all of them run this program with the
// same arguments, process 0 leads and alone prints, the others serve.
#pragma once

#include <functional>

#include "cli/selection.h"
#include "cli/verb.h"
#include "comm/transport.h"
#include "sim/remote/remote.h"

namespace sumonce {

struct ProcessRun {
  const Transport& transport;
  const Selection& selection;
  double time_limit_s = 60;  // --timeout
  // What process 0 does once all agree; returns the exit status.
  std::function<int(const RemoteScenarios&)> lead;
};

// The exit status, the same on all processes.
int RunOnProcesses(const ProcessRun& run, Context& context);

// Why a scenario cannot run on so few processes, with the line that would run it; empty if it can.
std::string TooFewProcesses(const Scenario& scenario, const ProcessGroup& group,
                            const std::string& program);

}  // namespace sumonce

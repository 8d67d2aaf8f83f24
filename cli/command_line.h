// The program without its process: arguments and streams in, exit status out.
//
// stdout is data, stderr is talk. Nothing but the streams, the files that flags name and, while
// scenarios run, the handlers of SIGINT and SIGTERM is touched. Call it from one thread. No
// exception leaves it.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "verify/runner.h"

namespace sumonce {

struct Io {
  std::ostream& out;
  std::ostream& err;
  bool out_is_terminal = false;
  bool err_is_terminal = false;  // then progress is shown on it
  bool no_color = false;         // NO_COLOR, or a terminal that knows no escapes
};

// What does the work: the functions of verify/runner.h, or others that a test puts in their place.
struct Engine {
  std::function<std::vector<ScenarioResult>(const Scenario&, const RunnerOptions&)> run =
      RunScenario;
  std::function<std::vector<ScenarioResult>(const Scenario&)> prove = ProveScenario;
};

// `arguments[0]` is the program as the user called it: replay lines start with it. Returns an
// ExitCode.
int RunCommandLine(const std::vector<std::string>& arguments, Io& io, const Engine& engine);

}  // namespace sumonce

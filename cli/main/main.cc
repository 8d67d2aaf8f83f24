// sumonce: see cli/command_line.h.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "cli/command_line.h"
#include "cli/exit_code.h"

namespace {

// A broken invariant of ours has said so on stderr and aborts: the status says the same.
void ExitAsInternalError(int) { _exit(sumonce::kInternalError); }

// https://no-color.org: set and not empty, whatever the value.
bool NoColor() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return (no_color != nullptr && *no_color != '\0') ||
         (term != nullptr && std::string_view(term) == "dumb");
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  std::signal(SIGABRT, ExitAsInternalError);
  sumonce::Io io{std::cout, std::cerr, isatty(STDOUT_FILENO) != 0, isatty(STDERR_FILENO) != 0,
                 NoColor()};
  return sumonce::RunCommandLine({argv, argv + argc}, io, sumonce::Engine{});
}

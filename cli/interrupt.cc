#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace sumonce {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM};
volatile std::sig_atomic_t interrupted = 0;
std::array<struct sigaction, kSignals.size()> previous;

}  // namespace

InterruptWatch::InterruptWatch() {
  interrupted = 0;
  struct sigaction action = {};
  action.sa_handler = [](int signal) {
    constexpr char kAnswer[] = "\nsumonce: stopping after this scenario; once more stops at once\n";
    if (interrupted != 0) {  // pends until this returns, and then ends the process
      std::signal(signal, SIG_DFL);
      std::raise(signal);
      return;
    }
    interrupted = 1;
    if (signal != SIGINT) return;  // nobody is there to read it
    if (write(STDERR_FILENO, kAnswer, sizeof kAnswer - 1) < 0) return;
  };
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &previous[i]);
    // Whoever started us decided that this signal is not for us: a shell's background job.
    if (previous[i].sa_handler == SIG_IGN) sigaction(kSignals[i], &previous[i], nullptr);
  }
}

InterruptWatch::~InterruptWatch() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous[i], nullptr);
}

bool InterruptWatch::Interrupted() const { return interrupted != 0; }

}  // namespace sumonce

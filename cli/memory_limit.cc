#include "cli/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/flags.h"
#include "verify/memory_estimate.h"

namespace sumonce {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Of a container or a batch job: cgroup v2, then v1. "max", or no file: none.
int64_t ControlGroupBytes() {
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    int64_t bytes = 0;
    if (file >> bytes && bytes > 0) return bytes;
  }
  return kNoLimit;
}

std::string BytesText(double bytes) {
  if (bytes >= (1 << 30)) return absl::StrFormat("%.4g GiB", bytes / (1 << 30));
  return absl::StrFormat("%.3g MiB", bytes / (1 << 20));
}

}  // namespace

int64_t DefaultMemoryLimit() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGE_SIZE);
  const int64_t machine = pages > 0 && page_bytes > 0 ? pages * page_bytes : kNoLimit;
  return std::min(machine, ControlGroupBytes()) / 4 * 3;
}

void AddMemoryLimit(CLI::App& app, int64_t& bytes) {
  bytes = DefaultMemoryLimit();
  AddBytes(app, "--memory-limit",
           "Skip a scenario whose simulation would take more (three quarters of this machine's "
           "memory), like 64G",
           int64_t{1} << 50, bytes);
}

std::string WhyTooLarge(const Scenario& scenario, int64_t limit) {
  const MemoryEstimate estimate = EstimateMemory(scenario);
  if (estimate.total() <= static_cast<double>(limit)) return "";
  return absl::StrCat(
      "its simulation would take about ", BytesText(estimate.total()),
      " (parameters, gradients and "
      "records of all ranks ",
      BytesText(estimate.parameters), ", activations ", BytesText(estimate.activations), ", data ",
      BytesText(estimate.data), ", in float64), more than the limit of ",
      BytesText(static_cast<double>(limit)),
      " (--memory-limit): sumonce prove judges it without numbers, whatever its size; a smaller "
      "hidden size, vocabulary or number of layers has the same faults");
}

}  // namespace sumonce

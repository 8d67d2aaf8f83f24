// Time for limits and heartbeats; no result depends on it.
#pragma once

#include <time.h>

namespace sumonce {

// Seconds; only differences mean anything.
inline double SecondsNow() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace sumonce

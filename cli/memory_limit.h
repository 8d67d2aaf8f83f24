// A simulation that would take more memory than there is does not start.
#pragma once

#include <cstdint>
#include <string>

#include "CLI/CLI.hpp"
#include "sim/scenario.h"

namespace sumonce {

// Three quarters of the memory that this process may have: the machine's, or its control group's
// where that is less. The greatest number if neither can be told.
int64_t DefaultMemoryLimit();

// --memory-limit BYTES, into `bytes`, which holds the default.
void AddMemoryLimit(CLI::App& app, int64_t& bytes);

// Why a scenario does not run under the limit: estimate (verify/memory_estimate.h), limit and what
// to do instead; "" if it may.
std::string WhyTooLarge(const Scenario& scenario, int64_t limit);

}  // namespace sumonce

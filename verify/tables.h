// Tables of tensor x rank, as the first founding report prints them.
#pragma once

#include <vector>

#include "sim/record.h"
#include "sim/scenario.h"
#include "verify/verdict.h"

namespace sumonce {

// After the last step of a LoRA run that starts with lora_B = 0 and has several steps: for every
// replicated lora_B the greatest absolute entry on each tp rank of dp rank 0. Exactly 0 means that
// the replica never moved. Empty otherwise.
std::vector<RankTable> RankTables(const Scenario& scenario, const RunRecord& record);

}  // namespace sumonce

// A job of a run over processes, as bytes and back: which scenario, with which edits. Edits travel
// as the messages of proto/defect.proto and proto/cure.proto, so that what a scenario file can say
// and what a diagnosis proposes is one vocabulary here too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/scenario.h"

namespace sumonce {

struct SimulationJob {
  int scenario = 0;
  int world_size = 1;
  std::vector<Edit> edits;
  bool native_sums = false;
  bool record_calls = false;
  std::string start_digest;
  std::optional<int> exit_status;  // the last job: nothing to simulate
};

// Internal: an edit that the messages cannot say.
absl::StatusOr<std::string> EncodeJob(const SimulationJob& job);
// Internal: not a job.
absl::StatusOr<SimulationJob> DecodeJob(const std::string& bytes);

}  // namespace sumonce

// A simulation as a capture: what a hook would have written on each rank, and the unsharded
// reference beside it (docs/capture-format.md).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "sim/scenario.h"
#include "sim/simulator.h"

namespace sumonce::capture {

struct SavedRun {
  const Scenario* scenario = nullptr;
  const RunRecord* record = nullptr;
  std::string name;  // the capture's `case`
};

// Writes step-NNNN/rank-NNNNN.safetensors for every recorded step and, for the steps whose replicas
// still agree at their start, reference/step-NNNN/rank-00000.safetensors: the unsharded step from
// the same weights. InvalidArgument: nothing was recorded. AlreadyExists unless `overwrite`: any of
// the files is there; then nothing is written. Unimplemented: a parameter of which some ranks of tp
// hold the same slice, which a capture's layout cannot say. Else the system's error.
absl::Status SaveRun(const SavedRun& run, const std::string& dir, bool overwrite);

}  // namespace sumonce::capture

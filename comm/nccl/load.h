// Finds and loads the module that links CUDA and NCCL (comm/nccl/module), once per process.
//
// The program itself links none of NVIDIA's libraries: it starts, and all else works, where they
// are absent. Thread-safe.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/nccl/api.h"

namespace sumonce::nccl {

// The tables of the real libraries. Unavailable: which piece is missing and what would change
// that. The module is looked for at SUMONCE_NCCL_MODULE if that is set, else beside the program,
// where it is installed, and where it was built.
absl::StatusOr<Api> Load();

// OK if at least one GPU can be used here, else Unavailable with what is missing: the module, the
// driver, a GPU.
absl::Status Probe();
// The same question of given tables.
absl::Status ProbeApi(Api api);

// The number of GPUs that can be used here; 0 if Probe fails.
int DeviceCount();

}  // namespace sumonce::nccl

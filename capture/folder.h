// The files of a capture folder: step-NNNN/rank-NNNNN.safetensors (or .json, a manifest without
// tensors). Only names are looked at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sumonce::capture {

struct RankFile {
  int rank = 0;
  std::string path;
};

struct StepFolder {
  int64_t step = 0;
  std::string path;
  std::vector<RankFile> ranks;  // ascending
};

// The steps of a capture, ascending. `path`: the capture's folder, or one step's folder (also one
// without a step's name that holds rank files). NotFound if there is no such folder;
// InvalidArgument if it holds no rank file, or one rank or step twice; the system's error if it
// cannot be read.
absl::StatusOr<std::vector<StepFolder>> ListCapture(const std::string& path);

// A whole file of at most `max_bytes`. A FIFO, a folder, a longer file is InvalidArgument.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t max_bytes);

}  // namespace sumonce::capture

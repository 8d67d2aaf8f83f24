// Which files, and which tensors of them, `diff A B` compares: two files, or two folders.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/safetensors.h"
#include "capture/diff/figures.h"

namespace sumonce::diff {

// The files stay where they are: TensorRefs point into `files`.
struct TensorPairs {
  struct Pair {
    std::string name;  // "w", or "step-0001/rank-00000.safetensors: w"
    TensorRef a, b;
  };
  std::vector<Pair> pairs;
  std::vector<std::string> only_a, only_b;              // tensors
  std::vector<std::string> files_only_a, files_only_b;  // whole files; paths below the folders
  // What lies in a folder under a safetensors file's name and cannot be read: FIFOs, sockets,
  // broken links, damaged files, folders that may not be listed. Each with path and reason.
  std::vector<std::string> unusable;
  std::vector<std::unique_ptr<SafetensorsReader>> files;
};

// Folders: by tensor names if no name stands twice in a folder (a model in several files, cut
// otherwise in the other), else file by file, by their paths below the folders; what cannot be used
// there is left out and named. NotFound, InvalidArgument: a file as SafetensorsReader; a file
// beside a folder; a folder without a safetensors file that can be used. `filter`: a glob; other
// tensors are left out.
absl::StatusOr<TensorPairs> PairTensors(const std::string& a, const std::string& b,
                                        const std::string& filter);

}  // namespace sumonce::diff

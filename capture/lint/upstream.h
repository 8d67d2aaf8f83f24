// Gradients that arrive wrong: where the sum is missing, and what the proof says with it put in.
#pragma once

#include <map>
#include <string>

#include "capture/lint/model_map.h"
#include "verify/prove.h"

namespace sumonce::lint {

// The scenario of a manifest with a sum in backward where a partial gradient passed last before it
// met a complete one. Each operation is proved once, in every layer at once.
class MendedProofs {
 public:
  explicit MendedProofs(const ModelMap& map) : map_(map) {}

  // The gradient of the model's parameter `ours` before the finalizer with the sum at `operation`.
  // Null: there is no such operation, or that does not mend it.
  const State* StateOf(const std::string& operation, const std::string& ours);
  // The cure in the framework's words.
  std::string Says(const std::string& operation) const;

 private:
  const ModelMap& map_;
  std::map<std::string, ProofRun> runs_;  // by operation
};

}  // namespace sumonce::lint

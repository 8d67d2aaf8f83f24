// The states of a manifest's parameters before the finalizer, and what the finalizer makes of them.
#pragma once

#include <string>
#include <vector>

#include "capture/lint/model_map.h"
#include "sim/finalize/finalizer.h"
#include "verify/prove.h"

namespace sumonce::lint {

// A gradient before the finalizer with what is right for it.
struct ParamState {
  State before;
  State target;
};

// The finalizer of a manifest, and the scales of its loss.
class ManifestFinalizer {
 public:
  explicit ManifestFinalizer(const ProofRun& run, const Scenario& scenario);

  const Mesh& mesh() const { return *run_.mesh; }
  const FinalizeConfig& config() const { return config_; }
  const Scale& sound_scale() const { return run_.sound_scale; }

  // The gradient of a class over tp (the module map's, a trace's): own terms over dp.
  ParamState StateOf(GradClass grad_class) const;

  // Class, action and verdict of a parameter with this name and these marks.
  Proof Finalized(const std::string& name, const Marks& marks, const ParamState& state,
                  const FinalizeConfig& config) const;
  // The names of the rules that claim it, one a step: ranks that differ here do not make the same
  // calls.
  std::vector<std::string> Claims(const std::string& name, const Marks& marks) const;

 private:
  const ProofRun& run_;
  FinalizePreset preset_;
  FinalizeConfig config_;
};

// The parameter of the model at whose use the state was lost, if the operation before reads one; ""
// if it is an activation's.
std::string ParamAt(const ProofRun& run, int operation);

}  // namespace sumonce::lint

// The proof: one abstract run of the same layers, and the same finalizer's rules on its states.
// Holds for every size of every axis that is larger than 1, under the printed conditions
// (docs/THEORY.md).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/scenario.h"
#include "spmd/abstract_tape.h"
#include "verify/grad_norm.h"
#include "verify/verdict.h"

namespace sumonce {

struct ProofRun {
  std::shared_ptr<const Mesh> mesh;
  std::shared_ptr<Model> model;
  std::shared_ptr<AbstractTape> tape;
  int loss = -1;        // its node on the tape
  std::string refused;  // why nothing can be proved: ranks that do not make the same calls
  std::map<std::string, Proof> proofs;  // per trained parameter
  std::map<std::string, State> before;  // states before the finalizer
  std::map<std::string, State> after;
  // Of each parameter after each step of the finalizer, with the step's name.
  std::map<std::string, std::vector<std::pair<std::string, State>>> finalized;
  std::vector<std::string> conditions;
  std::vector<Miscounted> norm_miscounts;  // where gradients are clipped
  Scale sound_scale;  // what a sound gradient carries before the finalizer (mean of cells: dp)
};

ProofRun Prove(const Scenario& scenario, std::span<const Edit> edits);

}  // namespace sumonce

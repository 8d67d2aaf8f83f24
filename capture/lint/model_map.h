// A manifest becomes a scenario: the modules that are known map onto our layers, each parameter
// onto one of theirs. What is not known, or not wired as ours, is left out and named; where it
// stands in the stream of hidden states, a layer that treats that stream soundly stands in.
//
// Sizes of the scenario are small, multiples of tp: no class depends on them. What does depend on a
// size (fewer key-value groups than ranks) is looked at here and left out.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "capture/lint/module_tree.h"
#include "capture/manifest.h"
#include "sim/scenario.h"

namespace sumonce::lint {

// A module that the scenario does not model, with all below it.
struct Unmodelled {
  std::string path;
  std::string class_name;
  std::string reason;  // "mixture of experts is not modelled"
};

struct ModelMap {
  Scenario scenario;
  std::string refused;  // why nothing at all can be said; empty: something can
  std::map<std::string, std::string> params;  // of the manifest -> of the scenario's model
  std::vector<std::string> layer_paths;       // of the manifest, by the model's layers
  // Weights that are used on the tokens as they lie (prove_alone.h).
  std::vector<std::string> routers;
  std::vector<Unmodelled> unmodelled;
  // The scenario's mesh has the job's expert sizes: parameters with allreduce=False can be judged.
  bool expert_groups = false;
  std::vector<std::string> assumptions;  // sentences: "megatron-core 0.21 finalizes as 0.19"
};

// `tree` is of `manifest`, which speaks for all ranks.
ModelMap MapModel(const capture::Manifest& manifest, const ModuleTree& tree);

// A module or operation of the scenario's model under the manifest's names.
std::string AsInManifest(const std::string& ours, const ModelMap& map);

// Why a parameter has no place in the map: the unmodelled module that holds it, or its own module's
// class.
std::string ReasonFor(const std::string& param, const ModelMap& map, const ModuleTree& tree);

}  // namespace sumonce::lint

// A linear module of the framework against ours: its class, the attributes that steer its
// communication, the adapter around it.
#pragma once

#include <string>

#include "capture/lint/model_map.h"

namespace sumonce::lint {

enum class LinearShape : uint8_t { kColumn, kRow };

// What the mapping of one model shares.
struct MapContext {
  const capture::Manifest& manifest;
  const ModuleTree& tree;
  ModelMap& map;
  bool sequence_parallel = false;  // of the configuration, effective: tp > 1
  int tp = 1;
};

struct LinearFacts {
  std::string problem;  // why it is not ours; empty: it is
  bool norm = false;    // fused in front
  bool bias = false;
  bool lora = false;
};

// The module at `path`; `ours`: the path in the scenario's model. Maps its parameters if it is
// ours.
LinearFacts MapLinear(const MapContext& context, const std::string& path, const std::string& ours,
                      LinearShape shape);

// Only looks, and maps nothing.
LinearFacts LookAtLinear(const MapContext& context, const std::string& path, LinearShape shape);

// A weight that every rank holds whole, used without communication. "" or why not.
std::string ReplicatedProblem(const MapContext& context, const std::string& path);

// Maps the norm at `path` onto the norm of ours: weight and bias alike. False: it is none.
bool MapNorm(const MapContext& context, const std::string& path, const std::string& ours);

// Enters a parameter of the manifest if there is one.
void MapParam(const MapContext& context, const std::string& path, const std::string& leaf,
              const std::string& ours);

}  // namespace sumonce::lint

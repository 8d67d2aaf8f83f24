// What the proof says of each parameter of a manifest: its class, the action that its marks and the
// framework's preset give, and the verdict. `lint` prints it; `audit` takes classes from it.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/lint/model_map.h"
#include "capture/lint/module_map.h"
#include "sim/finalize/finalizer.h"
#include "verify/prove.h"

namespace sumonce::lint {

struct StateOptions {
  ModuleMap module_map;
  // Classes over tp from a trace of the same model: they come before the map's. A parameter that is
  // not among them keeps the map's.
  std::map<std::string, GradClass> traced;
};

// Marks that make a parameter right, a switch of the configuration, or a sum in the model; tried on
// the states.
struct MarkCure {
  std::vector<MarkEdit> edits;  // none: what `text` names
  std::string text;             // "set sequence_parallel = True on <parameter>"
};

// Of one trained parameter.
struct ParamStatement {
  std::string kind;    // "decoder.layers.*.self_attention.linear_proj.lora_B.default.weight"
  std::string module;  // class of the module that holds it
  std::string shape;   // "[64, 8] float32", the rank's own
  std::string rules;  // of the finalizer that claim it: "data_parallel_mean, sequence_parallel_sum"
  Marks marks;        // as found
  Proof proof;        // class, action and verdict along tp, or along the axis at fault
  GradClass tp_class = GradClass::kUnknown;  // what it holds over tp before the finalizer
  std::string needed;         // "SUM", "none", "none or AVG" over tp; "" where nothing is said
  std::string source;         // what the class comes from: "proof", "trace", "module map"
  std::string norm_miscount;  // how the gradient norm counts its copies wrongly; "": rightly
  // UPSTREAM, MIXED_USE: the parameter in whose gradient it first shows; all others inherit it.
  std::string head;
  std::optional<MarkCure> cure;
};

struct Statements {
  std::map<std::string, ParamStatement> params;  // trained ones, by their names
  ModelMap map;
  std::string refused;
  std::vector<std::string> conditions;
  int frozen = 0;  // parameters without requires_grad: nothing is said of them
};

// `manifests`: of one step, by rank. All ranks' parameters are stated; their marks have to agree.
absl::StatusOr<Statements> StateParameters(std::span<const capture::Manifest> manifests,
                                           const StateOptions& options);

// The seam for audit: the class over tp of each parameter that the map knows; the others are
// absent.
std::map<std::string, GradClass> ClassesOf(const Statements& statements);

}  // namespace sumonce::lint

// Which classes the evidence leaves for a gradient before the finalizer, along the tensor axis, and
// why (theory section 9.3): how the parameter is cut, and what the ranks' contributions have in
// common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/audit/class_hint.h"
#include "capture/audit/geometry.h"
#include "capture/audit/measure.h"

namespace sumonce::capture {

struct ClassInputs {
  const ParamGeometry* geometry = nullptr;
  const Measure* measure = nullptr;
  const ClassHint* hint = nullptr;  // null: nothing else is known
  bool first_step = true;  // the first captured one: weights there tell replicas from shards
  std::optional<bool> replicated;  // known from an earlier step
};

struct ClassesLeft {
  std::vector<GradClass> classes;  // at least one
  std::vector<std::string> because;
  CutKnown cut = CutKnown::kUnknown;  // with what weights and hints say, where the file does not
  bool mixed_lines = false;           // some rows or columns complete, others partial
  bool weights_drifted = false;       // copies of one weight differ before this step
};

ClassesLeft FindClasses(const ClassInputs& inputs);

}  // namespace sumonce::capture

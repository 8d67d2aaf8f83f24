// What somebody else knows of a parameter's gradient before the finalizer: lint's proof from the
// module classes, or a probe of the job's own finalizer. An audit takes it where the numbers leave
// it open, and overrules it where they do not: non-zero equal contributions are never partial,
// different ones on equal weights never complete.
#pragma once

#include <map>
#include <string>

#include "verify/verdict.h"

namespace sumonce::capture {

struct ClassHint {
  GradClass grad_class = GradClass::kUnknown;  // along tp (experts: etp)
  bool mixed_use = false;  // partial in one use or part, complete in another: no action is right
  // Not empty: the gradient already arrives wrong from this operation. Parameters that name one
  // operation are one finding.
  std::string upstream;
  bool upstream_root = false;  // the parameter in which that operation shows, of those named so
  std::string source;          // "module map: linear_kv_down_proj of MLASelfAttention"
};

// By parameter name; no entry: nothing is known.
using ClassHints = std::map<std::string, ClassHint>;

}  // namespace sumonce::capture

// run --save-capture DIR: what the ranks of a scenario leave behind, as captures that `audit`
// takes.
#pragma once

#include <ostream>
#include <string>

#include "cli/selection.h"
#include "report/reporter.h"

namespace sumonce {

struct SaveCaptureOptions {
  std::string dir;
  bool overwrite = false;
  int64_t memory_limit = 0;  // bytes: larger simulations are not run (cli/memory_limit.h)
};

// Each selected scenario's broken run, and its reference, into `dir`/<area>/<file>, unless the
// selection has mistakes; what cannot be written is one of them. What ends without gradients, what
// a capture cannot say and what is too large is counted, with a line on `talk` each that gives the
// reason.
SavedCounts SaveCaptures(const SaveCaptureOptions& options, Selection& selection,
                         std::ostream& talk);

}  // namespace sumonce

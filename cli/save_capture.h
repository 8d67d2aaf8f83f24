// run --save-capture DIR: what the ranks of a scenario leave behind, as captures that `audit`
// takes.
#pragma once

#include <ostream>
#include <string>

#include "cli/selection.h"

namespace sumonce {

// Each selected scenario's broken run, and its reference, into `dir`/<area>/<file>, unless the
// selection has mistakes; what cannot be written is one of them. A line on `talk` for each that
// ends without gradients, with the reason.
void SaveCaptures(const std::string& dir, bool overwrite, Selection& selection, std::ostream& talk);

}  // namespace sumonce

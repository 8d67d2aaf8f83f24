// run --save-trace DIR: what the ranks of a scenario run, as traces that `prove --trace` takes.
#pragma once

#include <ostream>
#include <string>

#include "cli/selection.h"

namespace sumonce {

// Each selected scenario's broken step into `dir`/<area>/<file>, unless the selection has mistakes;
// what cannot be written is one of them. A line on `talk` for each that no trace can tell, with the
// reason.
void SaveTraces(const std::string& dir, bool overwrite, Selection& selection, std::ostream& talk);

}  // namespace sumonce

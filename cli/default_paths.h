// Where scenarios are when the user names none.
#pragma once

#include <string>
#include <vector>

namespace sumonce {

// ./scenarios if it is a directory that holds any; else the installed ones (share/sumonce/scenarios
// beside the program's bin); else those of the source tree that the program was built from.
std::vector<std::string> DefaultScenarioPaths();

}  // namespace sumonce

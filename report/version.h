// The version of this build, "0.1.0": in reports and in --version.
#pragma once

#include <string>

namespace sumonce {

std::string Version();

}  // namespace sumonce

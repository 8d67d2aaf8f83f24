// How inspect's sentences list names.
#pragma once

#include <string>
#include <vector>

namespace sumonce::inspect {

// "a", "a and b", "a, b, c and 9 more". Control characters are escaped: names come from a file.
std::string Listed(const std::vector<std::string>& names);
// A number as people read it: four significant digits.
std::string Figure(double value);

}  // namespace sumonce::inspect

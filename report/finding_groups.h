// Findings that say the same thing of several parameters and steps, put together: twelve adapters
// that lack one mark are one thing to read.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "verify/verdict.h"

namespace sumonce {

struct FindingGroup {
  const Finding* first = nullptr;   // into the grouped findings
  std::vector<std::string> params;  // each once, in the order of the findings; "" is the run itself
  std::vector<int> steps;           // ascending, each once
  std::vector<std::string> cures;   // their texts, each once
};

// Groups by verdict (outcome, mechanism, axis, coefficient, class, action, operation,
// consequences), by whether it was expected, and by how the trial of the cure ended; in the order
// in which the findings first appear.
std::vector<FindingGroup> GroupFindings(std::span<const Finding> findings);

// "", for step 1 alone; "step 3"; "steps 1-3"; "steps 1, 11, 21 and 8 more".
std::string StepsText(const std::vector<int>& steps);

}  // namespace sumonce

// For tests: for each declared operation the example, or several, that its declaration is swept
// over.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trace/testing/sweep.h"

namespace sumonce::trace::testing {

using Examples = std::map<std::string, std::vector<Example>>;  // by base name

void AddElementwiseExamples(Examples& examples);
void AddCombiningExamples(Examples& examples);   // reductions, contractions, mixing
void AddStructuralExamples(Examples& examples);  // views, joins, creation, collectives
void AddLookupExamples(Examples& examples);      // and what is put at looked-up places
Examples AllExamples();

// The extents of operands that are repeated along 1 and otherwise the same.
bool Broadcastable(const std::vector<Extents>& shapes);

}  // namespace sumonce::trace::testing

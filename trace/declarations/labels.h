// The forms that declarations of local operations are put together from.
#pragma once

#include <string_view>

#include "trace/declaration.h"

namespace sumonce::trace {

Labels Numbered(size_t rank, int from = 0);  // from, from + 1, ...

// Element by element, with extents of 1 repeated: all tensor arguments are operands; `linear` are
// argument positions. Dimensions of the result are labelled from 0.
LocalRule ElementwiseRule(const Call& call, std::initializer_list<int> linear);
LocalDeclaration Elementwise(std::initializer_list<int> linear);

// The dimensions of the first argument, named or -1-counted in argument `position` (a number or a
// list; absent: `absent`, or all if that is empty).
std::vector<int> DimsOf(const Call& call, int position, std::initializer_list<int64_t> absent);
DimSet LabelsOf(const std::vector<int>& dims);

// One result of the tensor arguments `positions`, whose dimensions and those of the result are
// single letters: Contraction(call, {0, 1}, "ik,kj->ij", ...).
LocalRule Lettered(const std::vector<int>& positions, std::string_view letters, uint32_t linear,
                   std::string_view sums = "", std::string_view mixes = "");

// Of arguments whose form no declaration covers.
LocalRule UndeclaredForm();

}  // namespace sumonce::trace

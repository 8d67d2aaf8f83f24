// Whether two traces of one job are the same program: between ranks, and between sizes of the axis.
#pragma once

#include <span>
#include <utility>

#include "absl/status/status.h"
#include "trace/program.h"

namespace sumonce::trace {

// FailedPrecondition names the first difference with operation and both values. The same: the
// number and order of operations, phases, kinds of arguments, words and flags among them, groups
// (by what they are to the axis), dtypes, numbers of dimensions, shapes if both have the same size,
// and which tensors share a storage. Numbers may differ; so may, between sizes, the lengths of
// lists of tensors that grow with the size.
// `named`: ids in the first and the second program of what has one name in both.
absl::Status ComparePrograms(const Program& first, const Program& second,
                             std::span<const std::pair<int, int>> named);

}  // namespace sumonce::trace

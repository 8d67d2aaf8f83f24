// The text form of a coefficient, as scenarios expect it and reports print it.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "spmd/scale.h"

namespace sumonce {

// "tp", "1/tp", "2*tp^2/dp", "0", "0.5": products and quotients of numbers and axes' sizes, from
// left to right. InvalidArgument names what cannot be read. The inverse of Scale::Describe.
absl::StatusOr<Scale> ParseCoefficient(std::string_view text, const Mesh& mesh);

}  // namespace sumonce

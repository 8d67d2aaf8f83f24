// A gradient that holds terms of other parameters: experts reduced over a group whose ranks hold
// other experts, which share a flat buffer (theory section 9.1, step 5: with more ranks as
// columns).
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "capture/audit/action.h"
#include "capture/audit/sample.h"

namespace sumonce::capture {

// What else is in f beside the holder's own contribution, looked for among the parameters of the
// same kind and shape on the ranks of the dense data-parallel group; or, if that does not explain
// it, that the marks send an expert into that group. Nothing if neither.
absl::StatusOr<std::optional<Action>> FindForeignTerms(const ActionInputs& inputs,
                                                       const Sample& sample);

// One rank's term replaced by what that rank contributed to another parameter of the same size:
// buffers that changed places. Nothing if that is not it.
absl::StatusOr<std::optional<Action>> FindSwappedTerm(const ActionInputs& inputs,
                                                      const Sample& sample);

}  // namespace sumonce::capture

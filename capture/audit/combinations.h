// What a gradient is made of, where it has no name: least squares in the ranks' contributions, in
// their microbatches' shares, and with an earlier step's gradients (theory section 9.1, steps 4 and
// 5). Only where there are many more elements than terms: else everything explains anything.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "capture/audit/action.h"
#include "capture/audit/sample.h"

namespace sumonce::capture {

// kMixture, or kPermuted where every rank holds what another one should. Nothing if some holder's
// gradient is no combination of the contributions.
std::optional<Action> FindCombination(const ActionInputs& inputs, const Sample& sample);

// kLost, with what each rank holds of which microbatch. Nothing without microbatches' shares.
absl::StatusOr<std::optional<Action>> FindMicrobatches(const ActionInputs& inputs,
                                                       const Sample& sample);

// kStale. Nothing without an earlier step.
absl::StatusOr<std::optional<Action>> FindEarlierStep(const ActionInputs& inputs,
                                                      const Sample& sample);

}  // namespace sumonce::capture

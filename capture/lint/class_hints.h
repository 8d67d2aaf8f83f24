// What the proof of a manifest's modules says of each parameter's gradient, as an audit takes it
// where the numbers leave the class open.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "capture/audit/class_hint.h"
#include "capture/lint/statements.h"

namespace sumonce::lint {

// An entry for each trained parameter of which something is known.
capture::ClassHints HintsOf(const Statements& statements);

// The same from the manifests of one step.
absl::StatusOr<capture::ClassHints> HintsFor(std::span<const capture::Manifest> manifests,
                                             const StateOptions& options);

}  // namespace sumonce::lint

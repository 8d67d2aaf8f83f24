// Which mark makes a parameter right: tried through the finalizer's own rules before it is named.
#pragma once

#include <optional>

#include "capture/lint/prove_manifest.h"
#include "capture/lint/statements.h"

namespace sumonce::lint {

// The smallest change of marks, or else the switch of the configuration, after which the parameter
// is right. None: no mark of this version makes it right.
std::optional<MarkCure> FindCure(const ManifestFinalizer& finalizer, const std::string& name,
                                 const ParamStatement& statement, const ParamState& state);

// Whether the finalizer may take it by its name (`qk_layernorm`).
bool NamedQkNorm(const std::string& name);

}  // namespace sumonce::lint

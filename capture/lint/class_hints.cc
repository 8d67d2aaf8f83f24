#include "capture/lint/class_hints.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce::lint {

capture::ClassHints HintsOf(const Statements& statements) {
  capture::ClassHints hints;
  for (const auto& [name, statement] : statements.params) {
    const bool lost = !statement.head.empty();
    if (statement.tp_class == GradClass::kUnknown && !lost) continue;
    hints[name] = {.grad_class = statement.tp_class,
                   .mixed_use = lost && statement.head == name,
                   .upstream = lost ? statement.proof.operation : "",
                   .upstream_root = lost && statement.head == name,
                   .source = absl::StrCat(statement.source, ": ", statement.module)};
  }
  return hints;
}

absl::StatusOr<capture::ClassHints> HintsFor(std::span<const capture::Manifest> manifests,
                                             const StateOptions& options) {
  SUMONCE_ASSIGN_OR_RETURN(const Statements statements, StateParameters(manifests, options));
  return HintsOf(statements);
}

}  // namespace sumonce::lint

// sumonce lint: a real job's parameters before its first step. No gradients are needed: the modules
// say what each parameter's gradient is, its marks and the framework's version what is done with
// it.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "capture/lint/statements.h"
#include "verify/verdict.h"

namespace sumonce::lint {

struct LintOptions {
  StateOptions state;
  bool strict = false;  // a parameter of which nothing can be said is a failure
};

// The verdicts for the reporters: a finding for each parameter that is not right, with its cure
// tried; the table of kinds; what is not known, by name. SKIP if nothing can be said of any.
// `path`: as LoadManifests takes it.
absl::StatusOr<ScenarioResult> Lint(const std::string& path, const LintOptions& options);
ScenarioResult LintStatements(const Statements& statements, const std::string& path,
                              const LintOptions& options);

}  // namespace sumonce::lint

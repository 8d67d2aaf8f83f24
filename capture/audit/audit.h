// The audit of a capture: every parameter of every captured step judged, steps put together, norms
// compared (docs/capture-format.md "What is judged").
//
// Without a reference the audit speaks of the finalizer: what it made of the contributions against
// what their class needs. A gradient that already arrives wrong is not seen unless it shows in the
// copies; InvisibleWithoutReference() says which mechanisms that concerns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/audit/class_hint.h"
#include "capture/audit/judge_param.h"
#include "capture/audit/norms.h"
#include "verify/verdict.h"

namespace sumonce::capture {

struct AuditOptions {
  const ClassHints* hints = nullptr;  // null: the classes come from the numbers alone
  // What is known of the classes and shall not be used: only to say where it would decide.
  const ClassHints* unused_hints = nullptr;
  std::optional<double> rtol;
  std::string against;  // a capture folder of the same steps under another mesh; empty: none
  std::string explain;  // a parameter whose story is told
  int threads = 2;
};

struct AuditedParam {
  std::string name;
  std::string kind;  // KindOf the name
  Verdict verdict;
  bool consequence = false;  // it only inherits the fault of `cause`
  std::string cause;
  bool by_difference_alone = false;  // as ParamJudgement
  bool mixed_lines = false;
  bool partly_right = false;
  bool against = false;        // compared with the reference
  double reference_error = 0;  // the worst holder's in the norm, in the first step compared
  std::string not_compared;
  // Rank and norm of its finalized gradient, in the step that decided; and over the reference's.
  std::vector<std::pair<int, double>> norms, ratios;
  std::vector<std::string> story;  // AuditOptions::explain: step by step
};

struct Audit {
  std::string path;       // as it was given
  std::string case_name;  // what the files call the run, may be empty
  std::vector<int64_t> steps;
  std::vector<AuditedParam> params;  // by name
  std::vector<NormFigures> norms;    // by step
  std::vector<std::string> faults;   // files that are missing or cannot be used: never silent
  std::vector<std::string> conditions;
  std::vector<std::string> notes;
  MeshSizes mesh;
};

// The errors of reading: nothing there, no file that can be used.
absl::StatusOr<Audit> AuditCapture(const std::string& path, const AuditOptions& options);

}  // namespace sumonce::capture

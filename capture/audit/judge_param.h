// One parameter in one step: from what its numbers say and what is known of its class to what
// follows. Without a reference the class is often open; then there is a conclusion for each class
// that the evidence leaves.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/audit/action.h"
#include "capture/audit/class_hint.h"
#include "capture/audit/conclude.h"
#include "capture/audit/geometry.h"
#include "capture/audit/measure.h"
#include "capture/audit/reference.h"
#include "verify/verdict.h"

namespace sumonce::capture {

struct ParamJudgement {
  int64_t step = 1;
  std::string shape;         // "[64, 8] float32"
  bool no_evidence = false;  // zero on every rank
  std::string no_statement;  // why nothing can be said: a missing file, shapes that differ
  std::vector<Conclusion> conclusions;      // none if either of the two
  std::vector<std::string> class_evidence;  // why these classes
  std::vector<std::string> per_rank;
  CutKnown cut = CutKnown::kUnknown;  // as far as it was found out
  // The class is partial only because contributions differ, and nothing was summed: a gradient that
  // arrives wrong would look the same.
  bool by_difference_alone = false;
  bool mixed_lines = false;    // some rows or columns complete, others partial
  bool replicas_part = false;  // copies of one weight got different gradients
  Likeness over_tensor = Likeness::kUnknown;
  bool parted_after = false;           // and after it
  bool weights_drifted = false;        // copies of one weight differ before this step
  std::vector<HolderFigures> figures;  // by holder
  bool against = false;                // compared with a reference
  std::string not_compared;            // why not, although one was given
  std::vector<double> ratios;          // by holder, of the reference's norm; negative: absent
  double reference_error = 0;          // the worst holder's, relative
  bool partly_right = false;           // some rows are the reference's, others are not
};

struct JudgeInputs {
  const Step* step = nullptr;
  const Step* previous = nullptr;
  const ParamGeometry* geometry = nullptr;
  MeasureOptions options;
  const ClassHint* hint = nullptr;
  const Reference* reference = nullptr;  // of this step; null: none, or not comparable any more
  bool first_step = true;  // the first captured one: weights there tell replicas from shards
  bool all_lines = false;  // also per_rank and class_evidence of what is right
  std::optional<bool> replicated;  // known from an earlier step
};

// The error of reading a file.
absl::StatusOr<ParamJudgement> JudgeParam(const JudgeInputs& inputs);

}  // namespace sumonce::capture

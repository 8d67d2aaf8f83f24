#include "cli/exit_code.h"

namespace sumonce {

ExitCode ExitCodeOf(const Summary& summary) {
  if (summary.internal_errors > 0) return kInternalError;
  if (summary.interrupted) return kInterrupted;
  if (summary.failed > 0) return kDiffers;
  const bool none_saved = summary.captures.not_saved > 0 && summary.captures.saved == 0;
  if (summary.passed > 0) return none_saved ? kAllSkipped : kAsExpected;
  return summary.skipped > 0 ? kAllSkipped : kNothingSelected;
}

}  // namespace sumonce

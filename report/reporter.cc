#include "report/reporter.h"

namespace sumonce {

void Summary::Count(const ScenarioResult& result) {
  switch (result.outcome) {
    case RunOutcome::kPass:
      ++passed;
      break;
    case RunOutcome::kFail:
      ++failed;
      break;
    case RunOutcome::kSkip:
      ++skipped;
      break;
  }
  if (result.internal_error) ++internal_errors;
  params_right += result.params_right;
  params_wrong += result.params_wrong;
  params_undecided += static_cast<int>(result.undecided.size());
  params_without_evidence += result.params_without_evidence;
}

}  // namespace sumonce

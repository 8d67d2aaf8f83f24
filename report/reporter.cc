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
}

}  // namespace sumonce

#include "verify/verdict.h"

namespace sumonce {

std::string_view Name(GradClass grad_class) {
  switch (grad_class) {
    case GradClass::kUnknown:
      return "unknown";
    case GradClass::kPartial:
      return "partial";
    case GradClass::kComplete:
      return "complete";
    case GradClass::kEqualShare:
      return "equal share";
    case GradClass::kShard:
      return "shard";
  }
  return "unknown";
}

}  // namespace sumonce

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

void TakeOver(const Proof& proof, Verdict& verdict) {
  verdict.outcome = proof.outcome;
  verdict.mechanism = proof.mechanism;
  verdict.axis = proof.axis;
  verdict.coefficient = proof.coefficient;
  verdict.factor = proof.factor;
  verdict.ranks = proof.ranks;
  verdict.grad_class = proof.grad_class;
  verdict.action = proof.action;
  verdict.operation = proof.operation;
}

}  // namespace sumonce

#include "verify/agreement.h"

namespace sumonce {

bool Agrees(const Verdict& numbers, const Proof& proof) {
  if (numbers.outcome == Outcome::kNoEvidence) return true;
  if (numbers.mechanism == Mechanism::kNotFinite)
    return true;  // overflow is a matter of numbers alone
  if (proof.outcome == Outcome::kNoStatement) return numbers.outcome == Outcome::kWrong;
  if (numbers.outcome == Outcome::kRight && proof.factor == 1.0)
    return true;  // sizes that cancel on this mesh
  if (numbers.outcome != proof.outcome) return false;
  if (numbers.outcome == Outcome::kRight) return true;
  // Axes of equal sizes: the same factor may carry another name.
  if (numbers.factor && proof.factor) return *numbers.factor == *proof.factor;
  return numbers.coefficient == proof.coefficient;
}

}  // namespace sumonce

// What an adapter's values say: one pass over each factor, a module at a time, so that no more than
// two tensors are held at once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/inspect/adapter.h"

namespace sumonce::inspect {

struct FactorFacts {
  double max_abs = 0;  // of the finite entries
  int64_t not_finite = 0;
  std::vector<int64_t> first_not_finite;  // its index, [row, column]
  double first_value = 0;                 // of that entry
  std::string digest;                     // equal for bitwise equal values of one shape

  bool zero() const { return max_abs == 0 && not_finite == 0; }
};

struct ModuleFacts {
  std::optional<FactorFacts> lora_A;
  std::optional<FactorFacts> lora_B;
  // Frobenius norm of lora_B lora_A, without the scaling. None if a factor is missing, not finite,
  // no matrix that fits the other, or too large (kMaxNormElements).
  std::optional<double> update_norm;
};

// Beyond so many elements of one factor its values are read in pieces and the norm is left out:
// 128 MiB a factor.
inline constexpr int64_t kMaxNormElements = int64_t{1} << 24;

// One entry for each of adapter.modules. InvalidArgument: the file changed while it was read.
absl::StatusOr<std::vector<ModuleFacts>> ReadFacts(const Adapter& adapter);

}  // namespace sumonce::inspect

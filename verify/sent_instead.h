// What a rank sent into a sum instead of its own term, from numbers.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/scenario.h"

namespace sumonce {

// What the rank had that it could have sent.
struct SentFrom {
  std::span<const double> own;         // the term that it should have sent
  std::span<const double> earlier;     // its term of the step before; empty if not known
  std::span<const double> neighbours;  // all that it put into the same buffer, in any order
};

struct SentInstead {
  Mechanism mechanism = Mechanism::kNone;
  std::string what;  // "is missing", "is there twice", ...: goes behind "rank 1's term"
};

// `sent`: what it must have sent, as many elements as `own`, each within `allowed`. None: it is
// nothing that we know of.
std::optional<SentInstead> ExplainSent(std::span<const double> sent, const SentFrom& from,
                                       double allowed);

// Which rank's term explains `total`, where it is not the sum of `inputs`: "rank 1's term is
// missing"; several that would: "..., or ..."; "" if none. `members`: the ranks' numbers.
std::string WhoSentWhat(std::span<const int> members, std::span<const std::vector<double>> inputs,
                        std::span<const double> total, double allowed);

}  // namespace sumonce

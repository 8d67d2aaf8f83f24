// What the finalizer did to a parameter that is not what it should be: a name for it, from a sample
// of its elements (all of them, unless there are very many). Says what was done, not whether that
// was right (theory section 9; verify/recover.h has the templates of one group).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/audit/measure.h"
#include "comm/mesh.h"

namespace sumonce::capture {

struct Action {
  enum class Kind : uint8_t {
    kOwn,          // lambda * own (Fit::kOwn)
    kSum,          // lambda * sum
    kNotReduced,   // nothing was summed over `axis`
    kWrongGroup,   // summed over other ranks than `axis` asks for
    kLost,         // a rank's or a microbatch's term is absent, or there more than once
    kPerRank,      // each rank its own multiple of own or of the sum
    kStale,        // a term of an earlier step is in it
    kPermuted,     // the right numbers at wrong places
    kMixture,      // a combination of the ranks' contributions that has no name
    kUnexplained,  // no combination of what went in
  };
  Kind kind = Kind::kUnexplained;
  double lambda = 1;            // kOwn, kSum: relative to kappa
  double rounding = 0;          // kOwn, kSum: what roundings alone can move lambda by
  double bound = 0;             // and what an element may be off, relative to its terms' magnitudes
  bool of_sum = false;          // kPerRank, kPermuted: of the sum, else of own
  bool zero_somewhere = false;  // kPerRank: some rank holds exactly zero
  bool crosses_tensor = false;  // kMixture, kLost: other places of the tensor axis took part
  std::optional<Axis> axis;
  std::vector<std::string> evidence;  // sentences
};

struct ActionInputs {
  const Step* step = nullptr;
  const Step* previous = nullptr;  // the step before, if it was captured
  const ParamGeometry* geometry = nullptr;
  const Measure* measure = nullptr;
  MeasureOptions options;
};

// All names that fit, the likeliest first; at least one. Numbers are finite, contributions known.
// They are of the sample: a kOwn or kSum holds of all elements only once that was looked at.
absl::StatusOr<std::vector<Action>> FindActions(const ActionInputs& inputs);

// The axis by whose groups these ranks are one: "edp" where they are a list of that group; nothing
// if none is.
std::string GroupNamed(const Manifest& manifest, const std::vector<int>& ranks);

}  // namespace sumonce::capture

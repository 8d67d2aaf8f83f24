#include "capture/audit/kappa.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "capture/audit/action.h"

namespace sumonce::capture {
namespace {

constexpr size_t kMaxAsked = 32;           // parameters
constexpr int64_t kMaxElements = 1 << 22;  // of one that is asked
constexpr double kSame = 1e-3;

struct Votes {
  double value = 0;
  int count = 0;
};

void Vote(double value, std::vector<Votes>& votes) {
  for (Votes& other : votes) {
    if (std::fabs(value - other.value) <= kSame * std::fabs(other.value)) {
      ++other.count;
      return;
    }
  }
  votes.push_back({value, 1});
}

absl::StatusOr<std::vector<Votes>> Ask(const Step& step,
                                       const std::vector<ParamGeometry>& geometries) {
  std::vector<Votes> votes;
  size_t asked = 0;
  const size_t stride = std::max<size_t>(1, geometries.size() / kMaxAsked);
  for (size_t i = 0; i < geometries.size() && asked < kMaxAsked; i += stride) {
    const ParamGeometry& geometry = geometries[i];
    if (!geometry.complete() || !geometry.conflict.empty()) continue;
    const Holder& first = geometry.first();
    if (step.Find(first.rank, first.param, step.KindNumber("finalized")).count > kMaxElements)
      continue;
    const MeasureOptions options;
    SUMONCE_ASSIGN_OR_RETURN(const Measure measure, MeasureParam(step, geometry, options));
    if (measure.shapes_differ || measure.contributions_missing || measure.contributions_zero ||
        !measure.not_finite.empty())
      continue;
    ++asked;
    SUMONCE_ASSIGN_OR_RETURN(
        const std::vector<Action> actions,
        FindActions(
            {.step = &step, .geometry = &geometry, .measure = &measure, .options = options}));
    std::vector<Votes> own;
    for (const Action& action : actions) {
      if (action.kind == Action::Kind::kOwn || action.kind == Action::Kind::kSum)
        Vote(action.lambda, own);
    }
    for (const Votes& vote : own) Vote(vote.value, votes);
  }
  return votes;
}

}  // namespace

absl::StatusOr<Kappa> FindKappa(const Step& step, const std::vector<ParamGeometry>& geometries) {
  const Manifest& first = step.first();
  const Tokens& tokens = step.Identity(step.ranks().front()).tokens;
  const std::optional<double> factor = NumberOf(first.ddp, "gradient_scaling_factor");
  Kappa kappa;
  if (tokens.global) kappa.value = 1 / std::max(*tokens.global, 1.0);
  if (factor) {
    kappa.value *= *factor;
    return kappa;
  }
  SUMONCE_ASSIGN_OR_RETURN(const std::vector<Votes> votes, Ask(step, geometries));
  // The factor one, or the most votes; of equals the first.
  const Votes* best = nullptr;
  for (const Votes& vote : votes) {
    if (best == nullptr || vote.count > best->count ||
        (vote.count == best->count && std::fabs(vote.value - kappa.value) < kSame))
      best = &vote;
  }
  if (best == nullptr || std::fabs(best->value / kappa.value - 1) < kSame) return kappa;
  kappa.value = best->value;
  kappa.condition = absl::StrFormat(
      "each contribution counts %.6g times, as for most parameters: the files do not say it "
      "(ddp.gradient_scaling_factor)",
      kappa.value);
  return kappa;
}

}  // namespace sumonce::capture

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
constexpr double kFloatFactor = 0x1p-22;   // relative

struct Votes {
  double value = 0;
  double rounding = 0;  // absolute
  int count = 0;

  bool Equals(double other, double its_rounding) const {
    return std::fabs(value - other) <= rounding + its_rounding + kFloatFactor * std::fabs(value);
  }
};

// Equal to what roundings explain; the least rounded value stands for all.
void Vote(double value, double rounding, std::vector<Votes>& votes) {
  for (Votes& other : votes) {
    if (!other.Equals(value, rounding)) continue;
    ++other.count;
    if (rounding < other.rounding) {
      other.value = value;
      other.rounding = rounding;
    }
    return;
  }
  votes.push_back({value, rounding, 1});
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
        Vote(action.lambda, action.rounding, own);
    }
    for (const Votes& vote : own) Vote(vote.value, vote.rounding, votes);
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
  const bool divided = FlagOf(first.config, "calculate_per_token_loss").value_or(false);
  if (factor && (tokens.global || !divided)) {
    kappa.value *= *factor;
    return kappa;
  }
  SUMONCE_ASSIGN_OR_RETURN(const std::vector<Votes> votes, Ask(step, geometries));
  // The factor one, or the most votes; of equals the first.
  const Votes* best = nullptr;
  for (const Votes& vote : votes) {
    if (best == nullptr || vote.count > best->count ||
        (vote.count == best->count && vote.Equals(kappa.value, 0)))
      best = &vote;
  }
  if (best == nullptr || best->Equals(kappa.value, 0)) return kappa;
  kappa.value = best->value;
  kappa.condition = absl::StrFormat(
      "each contribution counts %.6g times, as for most parameters: the files do not say it (%s)",
      kappa.value,
      factor ? "tokens.global, with the per-token loss" : "ddp.gradient_scaling_factor");
  return kappa;
}

}  // namespace sumonce::capture

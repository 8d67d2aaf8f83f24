#include "capture/audit/combinations.h"

#include <cmath>
#include <set>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "verify/directions.h"

namespace sumonce::capture {
namespace {

constexpr size_t kMaxTerms = 64;
constexpr int kMaxRanksTold = 8;
constexpr double kNoTerm = 1e-3;  // a coefficient below that is none

using Vectors = std::vector<std::vector<double>>;  // by holder, or by term
using Terms = std::vector<std::span<const double>>;

// Coefficients of each holder's gradient in the terms.
std::optional<Vectors> Combine(const Sample& sample, const Terms& terms) {
  if (terms.size() > kMaxTerms || sample.count <= 2 * static_cast<int64_t>(terms.size()))
    return std::nullopt;
  const Directions directions(terms, sample.bound());
  Vectors rows;
  for (const std::vector<double>& finalized : sample.finalized) {
    std::vector<double> row = directions.Nearest(finalized);
    for (int64_t i = 0; i < sample.count; ++i) {
      double sum = 0, magnitude = sample.sum_magnitude[i];
      for (size_t s = 0; s < row.size(); ++s) {
        sum += row[s] * terms[s][i];
        magnitude += std::fabs(row[s] * terms[s][i]);
      }
      if (!(std::fabs(sum - finalized[i]) <= 4 * sample.relative * magnitude)) return std::nullopt;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

int RankAt(const ActionInputs& inputs, int holder) { return inputs.geometry->holders[holder].rank; }

// The place along the tensor axis whose right result this row is; -1: none.
int PlaceOf(const std::vector<double>& row, const Sample& sample) {
  int place = -1;
  for (size_t s = 0; s < row.size(); ++s) {
    if (std::fabs(row[s]) >= kNoTerm) place = sample.tensor[s];
  }
  for (size_t s = 0; s < row.size(); ++s) {
    const double expected = sample.tensor[s] == place ? 1 : 0;
    if (std::fabs(row[s] - expected) >= kNoTerm) return -1;
  }
  return place;
}

// Every rank holds the right result of another place.
bool Permutes(const Vectors& rows, const Sample& sample) {
  std::set<std::pair<int, int>> moves;
  std::set<int> to;
  bool moved = false;
  for (size_t h = 0; h < rows.size(); ++h) {
    const int place = PlaceOf(rows[h], sample);
    if (place < 0) return false;
    moves.emplace(sample.tensor[h], place);
    to.insert(place);
    moved |= place != sample.tensor[h];
  }
  return moved && moves.size() == to.size();
}

bool AnyEmpty(const Vectors& values) {
  for (const std::vector<double>& value : values) {
    if (value.empty()) return true;
  }
  return false;
}

}  // namespace

std::optional<Action> FindCombination(const ActionInputs& inputs, const Sample& sample) {
  const std::optional<Vectors> rows =
      Combine(sample, Terms(sample.contribution.begin(), sample.contribution.end()));
  if (!rows) return std::nullopt;
  Action action{.kind = Permutes(*rows, sample) ? Action::Kind::kPermuted : Action::Kind::kMixture};
  for (size_t h = 0; h < rows->size(); ++h) {
    std::vector<std::string> terms;
    for (size_t s = 0; s < rows->size(); ++s) {
      const double c = (*rows)[h][s];
      if (std::fabs(c) < kNoTerm) continue;
      if (sample.tensor[s] != sample.tensor[h]) action.crosses_tensor = true;
      terms.push_back(absl::StrFormat("%.4g of rank %d's", c, RankAt(inputs, static_cast<int>(s))));
    }
    if (h >= kMaxRanksTold) continue;
    action.evidence.push_back(
        absl::StrCat("rank ", RankAt(inputs, static_cast<int>(h)), " holds ",
                     terms.empty() ? "nothing of any" : absl::StrJoin(terms, " + "),
                     " contribution, times what a right sum gives each"));
  }
  return action;
}

absl::StatusOr<std::optional<Action>> FindMicrobatches(const ActionInputs& inputs,
                                                       const Sample& sample) {
  std::vector<Vectors> microbatches;
  for (const std::string& kind : inputs.step->kinds()) {
    if (!kind.starts_with("contribution@")) continue;
    SUMONCE_ASSIGN_OR_RETURN(Vectors values,
                             SampleKind(*inputs.step, *inputs.geometry, *inputs.measure, kind));
    if (AnyEmpty(values)) return std::optional<Action>();
    microbatches.push_back(std::move(values));
  }
  if (microbatches.size() < 2) return std::optional<Action>();
  Terms terms;
  for (const Vectors& microbatch : microbatches)
    terms.insert(terms.end(), microbatch.begin(), microbatch.end());
  const std::optional<Vectors> rows = Combine(sample, terms);
  if (!rows) return std::optional<Action>();
  Action action{.kind = Action::Kind::kLost, .axis = inputs.geometry->data_axis};
  const int holders = inputs.geometry->count();
  for (int h = 0; h < holders && h < kMaxRanksTold; ++h) {
    std::vector<std::string> parts;
    for (size_t term = 0; term < terms.size(); ++term) {
      const double c = (*rows)[h][term];
      if (std::fabs(c) < kNoTerm) continue;
      parts.push_back(absl::StrFormat("%.4g of rank %d's microbatch %d", c,
                                      RankAt(inputs, static_cast<int>(term) % holders),
                                      term / holders));
    }
    action.evidence.push_back(
        absl::StrCat("rank ", RankAt(inputs, h), " holds ", absl::StrJoin(parts, " + ")));
  }
  return std::optional<Action>(std::move(action));
}

absl::StatusOr<std::optional<Action>> FindEarlierStep(const ActionInputs& inputs,
                                                      const Sample& sample) {
  if (inputs.previous == nullptr) return std::optional<Action>();
  ParamGeometry earlier = *inputs.geometry;
  for (Holder& holder : earlier.holders) {
    if (!inputs.previous->Has(holder.rank)) return std::optional<Action>();
    // By name: each step numbers its parameters.
    holder.param = inputs.previous->ParamNumber(inputs.step->params()[holder.param]);
    if (holder.param < 0) return std::optional<Action>();
  }
  Terms terms(sample.contribution.begin(), sample.contribution.end());
  std::vector<Vectors> kept;
  for (const char* kind : {"finalized", "contribution"}) {
    SUMONCE_ASSIGN_OR_RETURN(Vectors values,
                             SampleKind(*inputs.previous, earlier, *inputs.measure, kind));
    if (AnyEmpty(values)) return std::optional<Action>();
    kept.push_back(std::move(values));
  }
  for (const Vectors& values : kept) terms.insert(terms.end(), values.begin(), values.end());
  if (!Combine(sample, terms)) return std::optional<Action>();
  return std::optional<Action>(
      Action{.kind = Action::Kind::kStale,
             .evidence = {absl::StrCat("with the gradients of step ", inputs.previous->step(),
                                       " as further terms it is a combination, without them it "
                                       "is none")}});
}

}  // namespace sumonce::capture

#include "verify/recover.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "verify/directions.h"

namespace sumonce {
namespace {

using Ranks = std::span<const std::span<const double>>;

// One C: result r is numerator / denominator times the sum of some ranks' contributions. Kept so
// that sums of exact numbers stay exact (times 1/3 would not).
struct Template {
  std::string name;
  std::vector<std::vector<int>> sources;  // the ranks that are summed, ascending
  int divide = 1;                         // result r takes sources[r / divide % sources.size()]
  double numerator = 1;
  double denominator = 1;

  const std::vector<int>& SourcesOf(int r) const {
    return sources[static_cast<size_t>(r / divide) % sources.size()];
  }
};

std::vector<int> Everyone(int n) {
  std::vector<int> ranks(n);
  for (int r = 0; r < n; ++r) ranks[r] = r;
  return ranks;
}

std::vector<std::vector<int>> Own(int n) {
  std::vector<std::vector<int>> own;
  for (int r = 0; r < n; ++r) own.push_back({r});
  return own;
}

// Sums over a part of the group: `size` neighbours, and ranks `stride` apart, for every proper
// divisor.
void AddWrongGroups(int n, std::vector<Template>& templates) {
  for (int part = 2; part < n; ++part) {
    if (n % part != 0) continue;
    std::vector<std::vector<int>> blocks(n / part);
    std::vector<std::vector<int>> strides(part);
    for (int r = 0; r < n; ++r) {
      blocks[r / part].push_back(r);
      strides[r % part].push_back(r);
    }
    templates.push_back({absl::StrCat("blocks of ", part), std::move(blocks), part});
    templates.push_back({absl::StrCat("strides of ", part), std::move(strides)});
  }
}

std::vector<Template> Templates(int n) {
  const double size = n;
  const std::vector<std::vector<int>> all = {Everyone(n)};
  std::vector<Template> templates = {
      {"none", Own(n)},
      {"SUM", all},
      {"AVG", all, 1, 1, size},
      {"SUM twice", all, 1, size, 1},
      {"AVG after /n", all, 1, 1, size * size},
      {"n times own", Own(n), 1, size, 1},
      {"own / n", Own(n), 1, 1, size},
  };
  for (int r = 0; r < n; ++r) templates.push_back({absl::StrCat("copy of rank ", r), {{r}}});
  for (int r = 0; r < n; ++r)
    templates.push_back({absl::StrCat("n times rank ", r), {{r}}, 1, size, 1});
  for (int lost = 0; lost < n; ++lost) {
    std::vector<int> others = Everyone(n);
    others.erase(others.begin() + lost);
    templates.push_back({absl::StrCat("rank ", lost, " lost"), {others}});
  }
  AddWrongGroups(n, templates);
  return templates;
}

bool FitsAt(const Template& candidate, Ranks contributions, Ranks results, size_t element,
            double bound) {
  const std::vector<int>* summed = nullptr;
  double expected = 0;
  for (int r = 0; r < static_cast<int>(results.size()); ++r) {
    const std::vector<int>& sources = candidate.SourcesOf(r);
    if (&sources != summed) {
      double sum = 0;
      for (int s : sources) sum += contributions[s][element];
      expected = sum * candidate.numerator / candidate.denominator;
      summed = &sources;
    }
    if (!(std::fabs(results[r][element] - expected) <= bound)) return false;
  }
  return true;
}

// Drops a template at the first element that it does not fit: after a few elements only those that
// fit are left.
std::vector<std::string> FittingTemplates(Ranks contributions, Ranks results, double bound) {
  std::vector<Template> left = Templates(static_cast<int>(contributions.size()));
  for (size_t element = 0; element < contributions[0].size() && !left.empty(); ++element) {
    std::erase_if(left, [&](const Template& candidate) {
      return !FitsAt(candidate, contributions, results, element, bound);
    });
  }
  std::vector<std::string> names;
  for (Template& candidate : left) names.push_back(std::move(candidate.name));
  return names;
}

bool AllOf(Ranks ranks, bool (*holds)(double)) {
  return std::all_of(ranks.begin(), ranks.end(), [&](std::span<const double> rank) {
    return std::all_of(rank.begin(), rank.end(), holds);
  });
}

double MaxAbs(Ranks ranks) {
  double max = 0;
  for (std::span<const double> rank : ranks) {
    for (double value : rank) max = std::max(max, std::fabs(value));
  }
  return max;
}

struct Residual {
  double greatest = 0;
  double rounding = 0;  // what evaluating the combination itself may cost
};

Residual ResidualOf(const std::vector<double>& row, Ranks contributions,
                    std::span<const double> result) {
  const double roundings = 16.0 * static_cast<double>(row.size() + 1) * 0x1p-53;
  Residual residual;
  for (size_t i = 0; i < result.size(); ++i) {
    double sum = 0;
    double magnitude = std::fabs(result[i]);
    for (size_t s = 0; s < row.size(); ++s) {
      sum += row[s] * contributions[s][i];
      magnitude += std::fabs(row[s] * contributions[s][i]);
    }
    residual.greatest = std::max(residual.greatest, std::fabs(sum - result[i]));
    residual.rounding = std::max(residual.rounding, roundings * magnitude);
  }
  return residual;
}

void LeastSquares(const Directions& directions, Ranks contributions, Ranks results, double bound,
                  RecoveredAction& action) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  for (std::span<const double> result : results) {
    const std::vector<double> row = directions.Nearest(result);
    double sum = 0;
    for (size_t s = 0; s < row.size(); ++s) {
      sum += row[s];
      action.coefficients.push_back(directions.Determined(static_cast<int>(s)) ? row[s] : kUnknown);
    }
    action.row_sums.push_back(directions.SumDetermined() ? sum : kUnknown);
    const Residual residual = ResidualOf(row, contributions, result);
    action.residual = std::max(action.residual, residual.greatest);
    if (!(residual.greatest <= std::max(bound, residual.rounding))) action.inside_group = false;
  }
}

bool Has(const RecoveredAction& action, const std::string& fit) {
  return std::find(action.fits.begin(), action.fits.end(), fit) != action.fits.end();
}

}  // namespace

RecoveredAction RecoverAction(std::span<const std::span<const double>> contributions,
                              std::span<const std::span<const double>> results, double bound) {
  SUMONCE_CHECK(!contributions.empty() && contributions.size() == results.size())
      << contributions.size() << " contributions, " << results.size() << " results";
  for (size_t r = 0; r < results.size(); ++r) {
    SUMONCE_CHECK(contributions[r].size() == contributions[0].size() &&
                  results[r].size() == contributions[0].size())
        << "rank " << r << " has another count";
  }
  RecoveredAction action;
  action.ranks = static_cast<int>(contributions.size());
  const auto finite = [](double value) { return std::isfinite(value); };
  if (!AllOf(contributions, finite) || !AllOf(results, finite)) {
    action.residual = std::numeric_limits<double>::infinity();
    action.inside_group = false;
    return action;
  }
  action.zero = AllOf(contributions, [](double value) { return value == 0; });
  if (action.zero) {
    action.residual = MaxAbs(results);
    action.inside_group = action.residual <= bound;
    return action;
  }
  action.fits = FittingTemplates(contributions, results, bound);
  const Directions directions(contributions, bound);
  action.rank = directions.rank();
  if (action.fits.empty()) LeastSquares(directions, contributions, results, bound, action);
  return action;
}

std::string WhatWouldDecide(const RecoveredAction& action) {
  if (action.fits.size() == 1) return "";
  if (!action.inside_group) {
    return "the same with all ranks of the world as contributors: another group's terms, if they "
           "took part, then appear";
  }
  if (action.zero)
    return "another step, whose contributions are not zero, or the class from the proof";
  if (action.fits.empty())
    return "the communication log: the operation, group and count on this buffer";
  if (action.rank == action.ranks) {
    return "only the communication log: these names are one and the same map";
  }
  if (Has(action, "none")) {
    return "the parameters of one list stacked (they share the action), or a probe of the "
           "finalizer with random "
           "contributions: these are equal, which nothing and an average leave alike";
  }
  if (Has(action, "n times own")) {
    return "the communication log (a sum or a factor), or a probe of the finalizer with random "
           "contributions: these are "
           "equal; whether n times is right, the class from the proof or the reference says";
  }
  if (std::any_of(action.fits.begin(), action.fits.end(),
                  [](const std::string& fit) { return fit.ends_with(" lost"); })) {
    return "another step or microbatch in which every rank contributes, stacked with this one: a "
           "rank whose term is zero "
           "cannot be seen to be lost";
  }
  return "a probe of the finalizer with random contributions, or another step stacked with this "
         "one";
}

}  // namespace sumonce

#include "capture/audit/interpret.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sumonce::capture {
namespace {

// A gradient that has lost a term still looks most like what it should be; beyond this it is
// anything.
constexpr double kNearestError = 0.5;

bool AllWithin(const std::vector<Against>& all, double factor, double rtol) {
  return std::all_of(all.begin(), all.end(), [&](const Against& one) {
    return one.x_square < 0 || one.ErrorOf(factor) <= rtol;
  });
}

// One factor that all have in common; 0 if there is none. Sums of squares that cancel are good to
// half the digits of a double.
double CommonFactor(const std::vector<Against>& all, double of_rounding) {
  const double rtol = std::max(of_rounding, 1e-7);
  double factor = 0;
  for (const Against& one : all) {
    if (one.x_square < 0 || one.g_square == 0) continue;
    if (factor == 0) factor = one.coefficient();
    if (factor == 0 || one.ErrorOf(factor) > rtol) return 0;
  }
  return factor;
}

double WorstError(const std::vector<Against>& all) {
  double worst = 0;
  for (const Against& one : all) worst = std::max(worst, one.error());
  return worst;
}

class Interpreter {
 public:
  Interpreter(const ReferenceFigures& figures, const ParamGeometry& geometry,
              const Measure& measure, double rtol)
      : figures_(figures), geometry_(geometry), measure_(measure), rtol_(rtol) {}

  Interpretation Run() {
    result_.zero = figures_.zero && measure_.finalized_zero;
    result_.right = AllWithin(figures_.finalized, 1, rtol_);
    for (const Against& one : figures_.finalized) {
      if (one.x_square >= 0) result_.worst_error = std::max(result_.worst_error, one.error());
    }
    if (figures_.contributions && !measure_.contributions_zero) FindClass();
    PerRank();
    Relation();
    return std::move(result_);
  }

 private:
  bool replicated() const { return !figures_.cut && geometry_.tensor > 1; }

  GradClass OwnClass() const {
    if (geometry_.tensor == 1) return GradClass::kPartial;
    return figures_.cut ? GradClass::kShard : GradClass::kComplete;
  }
  GradClass SumClass() const {
    return measure_.over_tensor == Likeness::kEqual ? GradClass::kEqualShare : GradClass::kPartial;
  }

  void FindClass() {
    if (AllWithin(figures_.own, 1, rtol_)) {
      result_.grad_class = OwnClass();
      return;
    }
    if (replicated() && AllWithin(figures_.sum, 1, rtol_)) {
      result_.grad_class = SumClass();
      return;
    }
    const double own = CommonFactor(figures_.own, rtol_);
    if (own != 0) {
      result_.grad_class = OwnClass();
      result_.lambda = own;
      return;
    }
    const double sum = replicated() ? CommonFactor(figures_.sum, rtol_) : 0;
    if (sum != 0) {
      result_.grad_class = SumClass();
      result_.lambda = sum;
      return;
    }
    FindNearest();
  }

  void FindNearest() {
    const double own = WorstError(figures_.own);
    const double sum = replicated() ? WorstError(figures_.sum) : 1;
    if (std::min(own, sum) > kNearestError) return;
    result_.nearest = true;
    result_.grad_class = own < sum ? OwnClass() : SumClass();
  }

  void PerRank() {
    for (int h = 0; h < geometry_.count(); ++h) {
      const Against& one = figures_.finalized[h];
      if (one.x_square < 0) continue;
      const std::string rank = absl::StrCat("rank ", geometry_.holders[h].rank, ": ");
      if (measure_.holders[h].owned == 0) {
        result_.per_rank.push_back(rank + "owns none of it");
      } else if (one.x_square == 0) {
        result_.per_rank.push_back(rank + "exactly zero");
      } else if (one.g_square == 0) {
        result_.per_rank.push_back(rank + "not zero, the reference is");
      } else {
        result_.per_rank.push_back(absl::StrFormat("%s%.4g of the reference's norm, misfit %.1g",
                                                   rank, one.ratio(), one.misfit()));
      }
    }
  }

  void Relation() {
    if (result_.right) return;
    const double factor = CommonFactor(figures_.finalized, rtol_);
    if (measure_.finalized_zero) {
      result_.relation = "exactly zero on every rank";
    } else if (factor != 0) {
      result_.factor = factor;
      result_.relation = absl::StrFormat("%.5g times the reference on every rank", factor);
    }
  }

  const ReferenceFigures& figures_;
  const ParamGeometry& geometry_;
  const Measure& measure_;
  double rtol_;
  Interpretation result_;
};

}  // namespace

Interpretation Interpret(const ReferenceFigures& figures, const ParamGeometry& geometry,
                         const Measure& measure, double rtol) {
  return Interpreter(figures, geometry, measure, rtol).Run();
}

double DefaultRtol(double roundoff) {
  if (roundoff <= 0x1p-52) return 1e-9;
  return roundoff <= 0x1p-20 ? 2e-4 : 5e-2;
}

}  // namespace sumonce::capture

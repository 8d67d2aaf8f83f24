// A rank's own backward is wrong: its gradient of a parameter is scaled, or its rows stand in wrong
// places.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "sim/defects/effect.h"

namespace sumonce {
namespace {

// The factor as a rational with a small denominator, if it is one.
bool AsRational(double factor, Scale& scale) {
  for (int64_t denominator = 1; denominator <= 64; ++denominator) {
    const double numerator = factor * static_cast<double>(denominator);
    if (numerator != std::round(numerator) || std::fabs(numerator) > 1e6) continue;
    scale = Scale::Rational(static_cast<int64_t>(numerator), denominator);
    return true;
  }
  return false;
}

class ScaleEffect : public Effect {
 public:
  ScaleEffect(ScaleEdit edit, int rank) : edit_(std::move(edit)), rank_(rank) {}

  void OnTerm(const Param& param, Tensor& term) override {
    if (ActsOn(edit_.ranks, rank_) && GlobMatches(edit_.param, param.name))
      ScaleInto(term, edit_.factor);
  }
  void OnState(const Param& param, State& state) override {
    if (!GlobMatches(edit_.param, param.name) || state.lost || edit_.factor == 1) return;
    Scale scale;
    if (edit_.ranks.empty() && edit_.factor != 0 && AsRational(edit_.factor, scale)) {
      state = Apply(scale, state);
    } else {
      state.lost = {"some ranks' gradients are scaled by their backward", -1};
    }
  }

 private:
  ScaleEdit edit_;
  int rank_;
};

class PermuteEffect : public Effect {
 public:
  PermuteEffect(PermuteEdit edit, int rank) : edit_(std::move(edit)), rank_(rank) {}

  void OnTerm(const Param& param, Tensor& term) override {
    if (!ActsOn(edit_.ranks, rank_) || !GlobMatches(edit_.param, param.name) || term.count() == 0)
      return;
    const int64_t row = term.count() / term.dims()[0].extent();
    std::rotate(term.data(), term.data() + row, term.data() + term.count());
  }
  void OnState(const Param& param, State& state) override {
    const bool one_row = param.shards.whole()[0].extent() == 1;
    if (GlobMatches(edit_.param, param.name) && !state.lost && !one_row)
      state.lost = {"rows of the gradient stand in wrong places", -1};
  }

 private:
  PermuteEdit edit_;
  int rank_;
};

}  // namespace

std::unique_ptr<Effect> MakeEffect(const ScaleEdit& edit, int rank) {
  return std::make_unique<ScaleEffect>(edit, rank);
}
std::unique_ptr<Effect> MakeEffect(const PermuteEdit& edit, int rank) {
  return std::make_unique<PermuteEffect>(edit, rank);
}

}  // namespace sumonce

#include "capture/audit/buffers.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "capture/audit/kernels.h"
#include "capture/audit/sample.h"

namespace sumonce::capture {
namespace {

using Values = std::vector<std::vector<double>>;  // by holder

// A vector against a sum of others, element by element.
bool Equal(const std::vector<double>& x, const std::vector<double>& y, double allowed) {
  for (size_t i = 0; i < x.size(); ++i) {
    if (!(std::fabs(x[i] - y[i]) <= allowed)) return false;
  }
  return true;
}

double MaxAbs(const std::vector<double>& x) {
  double max = 0;
  for (const double value : x) max = std::max(max, std::fabs(value));
  return max;
}

class BufferChecker {
 public:
  BufferChecker(const Step& step, const Step* previous, const ParamGeometry& geometry,
                const Measure& measure, const MeasureOptions& options)
      : step_(step),
        previous_(previous),
        geometry_(geometry),
        measure_(measure),
        options_(options) {}

  absl::StatusOr<Buffers> Run() {
    SUMONCE_ASSIGN_OR_RETURN(const std::vector<Values> terms, KindsLike("contribution@"));
    SUMONCE_ASSIGN_OR_RETURN(const std::vector<Values> uses, KindsLike("use@"));
    if (terms.empty() && uses.empty()) return std::move(buffers_);
    SUMONCE_ASSIGN_OR_RETURN(contribution_, SampleKind(step_, geometry_, measure_, "contribution"));
    if (!terms.empty()) SUMONCE_RETURN_IF_ERROR(CheckMicrobatches(terms));
    if (!uses.empty()) {
      if (!buffers_.fault) CheckUses(uses);
      CompareUses(uses);
    }
    return std::move(buffers_);
  }

 private:
  // All kinds with this prefix that every present holder has.
  absl::StatusOr<std::vector<Values>> KindsLike(const std::string& prefix) {
    std::vector<std::string> names;
    for (const std::string& kind : step_.kinds()) {
      if (kind.starts_with(prefix)) names.push_back(kind);
    }
    std::sort(names.begin(), names.end());
    std::vector<Values> all;
    for (const std::string& name : names) {
      SUMONCE_ASSIGN_OR_RETURN(Values values, SampleKind(step_, geometry_, measure_, name));
      bool everywhere = true;
      for (int h = 0; h < geometry_.count(); ++h)
        everywhere &=
            !values[h].empty() || !geometry_.holders[h].present() || measure_.elements == 0;
      if (everywhere) all.push_back(std::move(values));
    }
    return all;
  }

  double Allowed(int h, const std::vector<Values>& terms) const {
    double magnitude = MaxAbs(contribution_[h]);
    for (const Values& term : terms) magnitude += MaxAbs(term[h]);
    const double relative =
        options_.rtol.value_or(RoundingBound(measure_.roundoff, static_cast<int>(terms.size())));
    return relative * magnitude;
  }

  std::vector<double> Excess(int h, const std::vector<Values>& terms) const {
    std::vector<double> excess = contribution_[h];
    for (const Values& term : terms) {
      for (size_t i = 0; i < excess.size(); ++i) excess[i] -= term[h][i];
    }
    return excess;
  }

  absl::Status CheckMicrobatches(const std::vector<Values>& terms) {
    for (int h = 0; h < geometry_.count(); ++h) {
      if (!geometry_.holders[h].present()) continue;
      const std::vector<double> excess = Excess(h, terms);
      const double allowed = Allowed(h, terms);
      if (MaxAbs(excess) <= allowed) continue;
      return NameExcess(h, excess, allowed, terms);
    }
    return absl::OkStatus();
  }

  absl::Status NameExcess(int h, const std::vector<double>& excess, double allowed,
                          const std::vector<Values>& terms) {
    const int rank = geometry_.holders[h].rank;
    const auto fault = [&](Mechanism mechanism, std::string sentence) {
      buffers_.fault = BufferFault{mechanism, {std::move(sentence)}};
      return absl::OkStatus();
    };
    for (size_t m = 0; m < terms.size(); ++m) {
      for (const double sign : {-1.0, 1.0}) {
        std::vector<double> term = terms[m][h];
        for (double& value : term) value *= sign;
        if (!Equal(excess, term, allowed)) continue;
        return fault(
            Mechanism::kLostContribution,
            absl::StrCat("on rank ", rank, " the share of microbatch ", m,
                         sign < 0 ? " is missing from the buffer" : " is in the buffer twice"));
      }
    }
    SUMONCE_ASSIGN_OR_RETURN(const bool stale, IsEarlier(h, excess, allowed));
    if (stale) {
      return fault(Mechanism::kStale,
                   absl::StrCat("on rank ", rank, " the buffer still holds the gradient of step ",
                                previous_->step()));
    }
    return fault(
        Mechanism::kLostContribution,
        absl::StrCat("on rank ", rank, " the buffer is not the sum of the microbatches' shares"));
  }

  absl::StatusOr<bool> IsEarlier(int h, const std::vector<double>& excess, double allowed) {
    const Holder& holder = geometry_.holders[h];
    if (previous_ == nullptr || !previous_->Has(holder.rank)) return false;
    ParamGeometry earlier = geometry_;
    earlier.holders.assign(geometry_.holders.size(), {});
    earlier.holders[h] = {.rank = holder.rank,
                          .param = previous_->ParamNumber(step_.params()[holder.param])};
    if (earlier.holders[h].param < 0) return false;
    SUMONCE_ASSIGN_OR_RETURN(const Values finalized,
                             SampleKind(*previous_, earlier, measure_, "finalized"));
    return !finalized[h].empty() && Equal(excess, finalized[h], allowed);
  }

  // What backward computed against what was handed on: the same numbers elsewhere, or others.
  void CheckUses(const std::vector<Values>& uses) {
    for (int h = 0; h < geometry_.count(); ++h) {
      if (!geometry_.holders[h].present()) continue;
      const double allowed = Allowed(h, uses);
      if (MaxAbs(Excess(h, uses)) <= allowed) continue;
      std::vector<double> computed(contribution_[h].size(), 0.0);
      for (const Values& use : uses) {
        for (size_t i = 0; i < computed.size(); ++i) computed[i] += use[h][i];
      }
      std::vector<double> handed = contribution_[h];
      std::sort(computed.begin(), computed.end());
      std::sort(handed.begin(), handed.end());
      const bool permuted = Equal(computed, handed, allowed);
      buffers_.fault =
          BufferFault{permuted ? Mechanism::kWrongShard : Mechanism::kLocalGradient,
                      {absl::StrCat("rank ", geometry_.holders[h].rank,
                                    permuted ? " has the right numbers at wrong places"
                                             : "'s gradient is not what its backward gives")}};
      return;
    }
  }

  void CompareUses(const std::vector<Values>& uses) {
    if (geometry_.tensor == 1 || geometry_.cut == CutKnown::kShard) return;
    const LikenessLimits limits = LimitsFor(measure_.roundoff);
    bool equal = false, unequal = false;
    std::vector<std::string> words;
    for (size_t u = 0; u < uses.size(); ++u) {
      double worst = 0, greatest = 0;
      for (int h = 0; h < geometry_.count(); ++h) {
        const int base = h - geometry_.TensorOf(h) * geometry_.data;
        if (!geometry_.holders[h].present() || !geometry_.holders[base].present()) continue;
        const auto count = static_cast<int64_t>(uses[u][h].size());
        const double square = std::max(SumOfSquares(uses[u][h].data(), count),
                                       SumOfSquares(uses[u][base].data(), count));
        greatest = std::max(greatest, square);
        if (square == 0) continue;
        worst = std::max(worst, std::sqrt(SumOfSquaredDifferences(uses[u][h].data(),
                                                                  uses[u][base].data(), count) /
                                          square));
      }
      if (greatest == 0) continue;
      equal |= worst <= limits.equal;
      unequal |= worst >= limits.unequal;
      words.push_back(absl::StrCat(
          "use ", u, worst <= limits.equal ? " equal on all ranks" : " different on each"));
    }
    buffers_.mixed_uses = equal && unequal;
    buffers_.uses = absl::StrJoin(words, ", ");
  }

  const Step& step_;
  const Step* previous_;
  const ParamGeometry& geometry_;
  const Measure& measure_;
  const MeasureOptions& options_;
  Values contribution_;
  Buffers buffers_;
};

}  // namespace

absl::StatusOr<Buffers> CheckBuffers(const Step& step, const Step* previous,
                                     const ParamGeometry& geometry, const Measure& measure,
                                     const MeasureOptions& options) {
  return BufferChecker(step, previous, geometry, measure, options).Run();
}

}  // namespace sumonce::capture

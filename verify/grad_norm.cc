#include "verify/grad_norm.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "sim/grad_norm.h"
#include "spmd/whole.h"

namespace sumonce {
namespace {

// A sum of squares, or the greatest |entry|.
class NormSum {
 public:
  explicit NormSum(NormType type) : type_(type) {}
  void Add(const Tensor& tensor) {
    for (const double value : tensor.values())
      sum_ = type_ == NormType::kInf ? std::max(sum_, std::fabs(value)) : sum_ + value * value;
  }
  void Add(const NormSum& other) {
    sum_ = type_ == NormType::kInf ? std::max(sum_, other.sum_) : sum_ + other.sum_;
  }
  double sum() const { return sum_; }
  double norm() const { return type_ == NormType::kInf ? sum_ : std::sqrt(sum_); }

 private:
  NormType type_;
  double sum_ = 0;
};

using StepsOfRanks = std::span<const StepRecord* const>;
using Member = Tensor ParamRecord::*;

Tensor WholeOf(const Param& param, const Mesh& mesh, StepsOfRanks ranks, Member member) {
  std::vector<Tensor> tensors;
  for (const StepRecord* rank : ranks) tensors.push_back(rank->params.at(param.name).*member);
  return Join(param.shards.Target(mesh), mesh, tensors).whole;
}

Tensor FinalizedOf(const Param& param, const Mesh& mesh, StepsOfRanks ranks) {
  std::vector<Tensor> tensors;
  for (const StepRecord* rank : ranks) tensors.push_back(rank->params.at(param.name).finalized());
  return Join(param.shards.Target(mesh), mesh, tensors).whole;
}

// What the first tensor-parallel group puts into the norm, or, of a parameter that is summed apart,
// each of its ranks by itself.
std::vector<NormSum> CountedOf(const Param& param, const FinalizePreset& preset, const Mesh& mesh,
                               StepsOfRanks ranks, NormType type) {
  NormSum together(type);
  std::vector<NormSum> apart;
  for (const int rank : mesh.Ranks(mesh.GroupOf(Axis::kTp), 0)) {
    const ParamRecord& record = ranks[rank]->params.at(param.name);
    NormSum own(type);
    if (CountsInNorm(record.marks, DuplicateRank(record.marks, preset, mesh, rank)))
      own.Add(record.finalized());
    if (IsSummedApart(record.marks, mesh)) {
      apart.push_back(own);
    } else {
      together.Add(own);
    }
  }
  return apart.empty() ? std::vector<NormSum>{together} : apart;
}

// What each of these has to be: the whole, or of copies that are summed apart the rank's own, which
// may have drifted.
std::vector<NormSum> OnceOf(const Param& param, const Mesh& mesh, StepsOfRanks ranks,
                            const Tensor& whole, NormType type, size_t sums) {
  std::vector<NormSum> once;
  const std::vector<int> group = mesh.Ranks(mesh.GroupOf(Axis::kTp), 0);
  for (size_t i = 0; i < sums; ++i) {
    NormSum sum(type);
    const bool own = sums > 1 && param.shards.CopiedOverTp();
    sum.Add(own ? ranks[group[i]]->params.at(param.name).finalized() : whole);
    once.push_back(sum);
  }
  return once;
}

std::string_view Sentence(Miscount how) {
  switch (how) {
    case Miscount::kEveryCopy:
      return " is replicated and marked tensor_model_parallel: every tp rank's copy counts";
    case Miscount::kOneShard:
      return " is sharded and not marked tensor_model_parallel: tp rank 0's shard alone counts";
    case Miscount::kOnRankZero:
      return " is marked allreduce=false and not tensor_model_parallel, and etp is not tp: it "
             "counts on tp rank 0 alone, and the other ranks have another norm";
    case Miscount::kOwnShard:
      return " is sharded and marked allreduce=false, and etp is not tp: each rank counts its own "
             "shard alone";
  }
  return "";
}

std::string Sentence(const Miscounted& miscounted) {
  return absl::StrCat(miscounted.param, ToAbsl(Sentence(miscounted.how)));
}

// The largest difference of an update, in units of the learning rate.
double StepDifference(const Param& param, const Mesh& mesh, StepsOfRanks ranks,
                      const StepRecord& reference, double lr) {
  const Tensor after = WholeOf(param, mesh, ranks, &ParamRecord::weight_after);
  const Tensor before = WholeOf(param, mesh, ranks, &ParamRecord::weight_before);
  const ParamRecord& expected = reference.params.at(param.name);
  double most = 0;
  for (int64_t i = 0; i < after.count(); ++i) {
    const double own = after.values()[i] - before.values()[i];
    const double right = expected.weight_after.values()[i] - expected.weight_before.values()[i];
    most = std::max(most, std::fabs(own - right));
  }
  return lr > 0 ? most / lr : 0;
}

}  // namespace

std::vector<Miscounted> MiscountedByMarks(const ParamStore& params, const FinalizePreset& preset,
                                          const Mesh& mesh, NormType norm_type) {
  std::vector<Miscounted> miscounted;
  for (const Param& param : params.all()) {
    if (!param.requires_grad) continue;
    const bool marked = param.marks.tensor_model_parallel;
    if (IsSummedApart(param.marks, mesh)) {
      if (param.shards.CutOverTp()) {
        miscounted.push_back({.param = param.name, .how = Miscount::kOwnShard});
      } else if (!marked && !preset.experts_counted_by_etp) {
        miscounted.push_back({.param = param.name, .how = Miscount::kOnRankZero});
      }
    } else if (marked && param.shards.CopiedOverTp() && norm_type != NormType::kInf) {
      miscounted.push_back({.param = param.name, .how = Miscount::kEveryCopy});
    } else if (!marked && param.shards.CutOverTp()) {
      miscounted.push_back({.param = param.name, .how = Miscount::kOneShard});
    }
  }
  return miscounted;
}

NormCheck CheckGradNorm(const Mesh& mesh, const FinalizePreset& preset,
                        const OptimizerConfig& optimizer, const ParamStore& params,
                        StepsOfRanks ranks, const StepRecord& reference,
                        const Tolerance& tolerance) {
  NormCheck check;
  const NormType type = optimizer.norm_type;
  NormSum once(type), whole(type);
  for (const Param& param : params.all()) {
    if (!param.requires_grad) continue;
    const Tensor finalized = FinalizedOf(param, mesh, ranks);
    NormSum own(type);
    own.Add(finalized);
    once.Add(own);
    whole.Add(reference.params.at(param.name).finalized());
    const std::vector<NormSum> counted = CountedOf(param, preset, mesh, ranks, type);
    const std::vector<NormSum> right = OnceOf(param, mesh, ranks, finalized, type, counted.size());
    // The same squares in another order.
    const double roundings =
        tolerance.gamma + tolerance.rounding + 0x1p-52 * static_cast<double>(finalized.count() + 2);
    const auto differ = [&](const NormSum& a, const NormSum& b) {
      return std::fabs(a.sum() - b.sum()) > roundings * std::max(a.sum(), b.sum());
    };
    if (!std::equal(counted.begin(), counted.end(), right.begin(), std::not_fn(differ))) {
      check.miscounted.push_back(param.name);
    } else if (own.sum() == 0 || (type == NormType::kInf && param.shards.CutOverTp())) {
      check.unseen.push_back(param.name);
    }
  }
  check.counted = ranks[0]->grad_norm->norm;
  for (const int rank : mesh.Ranks(mesh.GroupOf(Axis::kTp), 0))
    check.by_rank.push_back(ranks[rank]->grad_norm->norm);
  const auto same = [&](double norm) { return norm == check.counted; };
  if (std::all_of(check.by_rank.begin(), check.by_rank.end(), same)) check.by_rank.clear();
  check.clip_factor = ranks[0]->grad_norm->clip_factor;
  check.once = once.norm();
  check.reference = whole.norm();
  check.reference_clip_factor = ClipFactor(check.reference, optimizer.clip_grad);
  return check;
}

std::optional<Verdict> NormVerdict(const NormCheck& check, std::span<const Miscounted> miscounted) {
  if (miscounted.empty()) return std::nullopt;
  Verdict verdict;
  verdict.outcome = Outcome::kWrong;
  verdict.mechanism = Mechanism::kNormMiscount;
  verdict.axis = Axis::kTp;
  if (check.once > 0) {
    verdict.evidence.push_back(absl::StrFormat(
        "the gradient norm comes to %.6g; with every parameter once it is %.6g, of the unsharded "
        "run %.6g",
        check.counted, check.once, check.reference));
  }
  if (!check.by_rank.empty()) {
    const auto exactly = [](std::string* out, double norm) {
      absl::StrAppendFormat(out, "%.9g", norm);
    };
    verdict.evidence.push_back(absl::StrCat(
        "the ranks of a tp group do not agree on it: ", absl::StrJoin(check.by_rank, ", ", exactly),
        "; so they clip by different factors"));
  }
  for (const Miscounted& one : miscounted) {
    verdict.evidence.push_back(Sentence(one));
    verdict.affected.push_back(one.param);
  }
  return verdict;
}

std::vector<std::string> NormDisagreements(const NormCheck& check,
                                           std::span<const Miscounted> proved) {
  std::vector<std::string> sentences;
  const auto holds = [](std::span<const Miscounted> list, const std::string& param) {
    return std::any_of(list.begin(), list.end(),
                       [&](const Miscounted& one) { return one.param == param; });
  };
  for (const std::string& param : check.miscounted) {
    if (!holds(proved, param))
      sentences.push_back(
          absl::StrCat(param, ": numbers say that the norm counts it wrong, the proof says once"));
  }
  for (const Miscounted& one : proved) {
    const auto in = [&](const std::vector<std::string>& list) {
      return std::find(list.begin(), list.end(), one.param) != list.end();
    };
    if (!in(check.unseen) && !in(check.miscounted))
      sentences.push_back(absl::StrCat(one.param, ": the proof says that ", Sentence(one),
                                       "; numbers say that the norm counts it once"));
  }
  return sentences;
}

RankTable NormTable(const NormCheck& check, const Mesh& mesh, const OptimizerConfig& optimizer,
                    const ParamStore& params, StepsOfRanks ranks, const StepRecord& reference,
                    std::span<const std::string> right) {
  double difference = 0;
  for (const Param& param : params.all()) {
    if (std::find(right.begin(), right.end(), param.name) == right.end()) continue;
    difference = std::max(difference, StepDifference(param, mesh, ranks, reference, optimizer.lr));
  }
  RankTable table;
  table.title =
      absl::StrCat("gradient norm of step ", ranks[0]->step, ", clipped to ", optimizer.clip_grad,
                   "; step off by: of parameters whose gradients are right, in lr");
  table.columns = {"norm", "each once", "clip factor", "step off by"};
  table.rows.push_back(
      {.name = "this run", .values = {check.counted, check.once, check.clip_factor, difference}});
  table.rows.push_back(
      {.name = "unsharded run",
       .values = {check.reference, check.reference, check.reference_clip_factor, 0}});
  return table;
}

}  // namespace sumonce

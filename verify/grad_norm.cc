#include "verify/grad_norm.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

// What the first tensor-parallel group's ranks put into the norm.
NormSum CountedOf(const Param& param, const Mesh& mesh, StepsOfRanks ranks, NormType type) {
  NormSum sum(type);
  const std::vector<int> group = mesh.Ranks(mesh.GroupOf(Axis::kTp), 0);
  for (size_t i = 0; i < group.size(); ++i) {
    const ParamRecord& record = ranks[group[i]]->params.at(param.name);
    if (CountsInNorm(record.marks, static_cast<int>(i))) sum.Add(record.finalized());
  }
  return sum;
}

std::string Sentence(const Miscounted& miscounted) {
  return absl::StrCat(miscounted.param,
                      miscounted.replicated
                          ? " is replicated and marked tensor_model_parallel: every tp rank's copy "
                            "counts"
                          : " is sharded and not marked tensor_model_parallel: tp rank 0's shard "
                            "alone counts");
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

std::vector<Miscounted> MiscountedByMarks(const ParamStore& params, NormType norm_type) {
  std::vector<Miscounted> miscounted;
  for (const Param& param : params.all()) {
    const bool marked = param.marks.tensor_model_parallel;
    if (!param.requires_grad || !(marked ? param.shards.CopiedOverTp() : param.shards.CutOverTp()))
      continue;
    if (marked && norm_type == NormType::kInf) continue;
    miscounted.push_back({.param = param.name, .replicated = marked});
  }
  return miscounted;
}

NormCheck CheckGradNorm(const Mesh& mesh, const OptimizerConfig& optimizer,
                        const ParamStore& params, StepsOfRanks ranks, const StepRecord& reference,
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
    const double counted = CountedOf(param, mesh, ranks, type).sum();
    // The same squares in another order.
    const double roundings =
        tolerance.gamma + tolerance.rounding + 0x1p-52 * static_cast<double>(finalized.count() + 2);
    if (std::fabs(counted - own.sum()) > roundings * std::max(counted, own.sum())) {
      check.miscounted.push_back({.param = param.name, .replicated = counted > own.sum()});
    } else if (own.sum() == 0 || (type == NormType::kInf && param.shards.CutOverTp())) {
      check.unseen.push_back(param.name);
    }
  }
  check.counted = ranks[0]->grad_norm->norm;
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
  for (const Miscounted& one : check.miscounted) {
    if (!holds(proved, one.param))
      sentences.push_back(absl::StrCat(
          one.param, ": numbers say that the norm counts it wrong, the proof says once"));
  }
  for (const Miscounted& one : proved) {
    const bool unseen =
        std::find(check.unseen.begin(), check.unseen.end(), one.param) != check.unseen.end();
    if (!unseen && !holds(check.miscounted, one.param))
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

// The loss composed of its pieces, as Megatron-Core's VocabParallelCrossEntropy: maximum, shift,
// sum of exponentials, target logit, logarithm, difference, masked sum.
#include <algorithm>

#include "gmock/gmock.h"
#include "spmd/abstract_tape.h"
#include "spmd/collectives.h"
#include "spmd/local_rules.h"
#include "spmd/numeric_tape.h"
#include "spmd/ops/dot.h"
#include "spmd/ops/log.h"
#include "spmd/ops/max_over.h"
#include "spmd/ops/shift.h"
#include "spmd/ops/subtract.h"
#include "spmd/ops/sum_exp.h"
#include "tests/golden.h"
#include "tests/run_operation.h"

namespace sumonce {
namespace {

using testing::Golden;
using testing::kSequenceFirst;

const Dims kTokens = {Plain(Dim::kSequence, 7), Plain(Dim::kBatch, 2)};
const Dims kLogits = {kTokens[0], kTokens[1], Plain(Dim::kVocab, 14)};
const DotOptions kOverVocab = {.over = SetOf(Dim::kVocab)};
const DotOptions kOverTokens = {.over = SetOf(Dim::kSequence, Dim::kBatch)};

Tensor OneHot(const Golden& golden) {
  const Tensor targets = golden.Get("in.targets", kTokens, kSequenceFirst);
  Tensor one_hot(kLogits);
  for (int64_t i = 0; i < targets.count(); ++i) {
    one_hot.data()[i * 14 + static_cast<int64_t>(targets.data()[i])] = 1.0;
  }
  return one_hot;
}

// Each token's weight: its mask over the number of counted tokens.
Tensor Weights(const Golden& golden) {
  Tensor weights = golden.Get("in.loss_mask", kTokens, kSequenceFirst);
  double counted = 0.0;
  for (const double mask : weights.values()) counted += mask;
  ScaleInto(weights, 1.0 / counted);
  return weights;
}

// What the tests below take away from the right program.
struct Without {
  bool maximum_reduction = false;
  bool sum_reduction = false;
  bool target_reduction = false;
};

struct Loss {
  Value logits, token_loss, loss;
};

Loss Compose(Tape& tape, Param& logits, const Input& one_hot, const Input& weights,
             const Without& without = {}) {
  const Value x = tape.Use(logits);
  const Value local_max = MaxOver(tape, x);
  const Value m =
      without.maximum_reduction ? tape.Detach(local_max) : StopMax(tape, local_max, Axis::kTp);
  const Value shifted = Shift(tape, x, m);
  Value sum = SumExp(tape, shifted);
  if (!without.sum_reduction) sum = ReduceFromRegion(tape, sum, Axis::kTp);
  Value target = Dot(tape, shifted, tape.Constant(one_hot), kOverVocab);
  if (!without.target_reduction) target = ReduceFromRegion(tape, target, Axis::kTp);
  const Value token_loss = Subtract(tape, Log(tape, sum), target);
  return {x, token_loss, Dot(tape, token_loss, tape.Constant(weights), kOverTokens)};
}

TEST(VocabParallelLoss, UncutMatchesGolden) {
  const Golden golden("cross_entropy_mask");
  const Tensor one_hot = OneHot(golden), weights = Weights(golden);
  Param logits{.name = "logits", .weight = golden.Get("in.logits", kLogits, kSequenceFirst)};
  const Mesh mesh = *Mesh::Create({});
  NumericTape tape(mesh, 0, nullptr);
  const Loss loss =
      Compose(tape, logits, {.name = "one_hot", .shards = ShardMap(kLogits, {}), .whole = &one_hot},
              {.name = "weights", .shards = ShardMap(kTokens, {}), .whole = &weights});
  tape.Backward(loss.loss);
  ASSERT_TRUE(tape.status().ok()) << tape.status().message();
  EXPECT_TRUE(golden.Matches(tape.value(loss.token_loss), "out.token_loss", kSequenceFirst));
  EXPECT_TRUE(golden.Matches(tape.value(loss.loss), "out.loss"));
  EXPECT_TRUE(golden.Matches(tape.grad(loss.logits.id), "grad.in.logits", kSequenceFirst));
}

Tensor Larger(const Tensor& a, const Tensor& b) {
  Tensor larger = a.Clone();
  for (int64_t i = 0; i < b.count(); ++i) larger.data()[i] = std::max(a.data()[i], b.data()[i]);
  return larger;
}

Tensor Sum(const Tensor& a, const Tensor& b) {
  Tensor sum = a.Clone();
  AddInto(sum, b);
  return sum;
}

// The stored pieces of two shards of 7 ids: what each rank computes and what the reductions give.
TEST(VocabParallelLoss, PiecesOfTwoShardsMatchGolden) {
  const Golden golden("cross_entropy_mask");
  const Tensor one_hot = OneHot(golden), logits = golden.Get("in.logits", kLogits, kSequenceFirst);
  std::vector<Tensor> x, hot, local_max, shifted, local_sum, local_target;
  for (int rank = 0; rank < 2; ++rank) {
    x.push_back(SliceUnits(logits, Dim::kVocab, rank, 2));
    hot.push_back(SliceUnits(one_hot, Dim::kVocab, rank, 2));
    local_max.push_back(testing::RunForward(MaxOverOperation(), {x[rank]}));
    EXPECT_TRUE(
        golden.Matches(x[rank], absl::StrCat("tp", rank, ".in.logits"), kSequenceFirst, 0.0));
    EXPECT_TRUE(golden.Matches(local_max[rank], absl::StrCat("tp", rank, ".logits_max"),
                               kSequenceFirst, 0.0));
  }
  const Tensor m = Larger(local_max[0], local_max[1]);
  EXPECT_TRUE(golden.Matches(m, "vp.logits_max", kSequenceFirst, 0.0));
  for (int rank = 0; rank < 2; ++rank) {
    shifted.push_back(testing::RunForward(ShiftOperation(), {x[rank], m}));
    local_sum.push_back(testing::RunForward(SumExpOperation(), {shifted[rank]}));
    local_target.push_back(
        testing::RunForward(DotOperation(kOverVocab), {shifted[rank], hot[rank]}));
    EXPECT_TRUE(
        golden.Matches(local_sum[rank], absl::StrCat("tp", rank, ".sum_exp"), kSequenceFirst));
  }
  const Tensor sum = Sum(local_sum[0], local_sum[1]);
  EXPECT_TRUE(golden.Matches(sum, "vp.sum_exp", kSequenceFirst));
  const Tensor target = Sum(local_target[0], local_target[1]);
  EXPECT_TRUE(golden.Matches(target, "vp.predicted_minus_max", kSequenceFirst));

  const Tensor grad_loss = Weights(golden);  // of each token's loss
  const Tensor grad_sum = testing::RunBackward(LogOperation(), {sum}, grad_loss)[0];
  const Tensor grad_target = testing::RunBackward(SubtractOperation(), {sum, target}, grad_loss)[1];
  for (int rank = 0; rank < 2; ++rank) {
    Tensor grad = testing::RunBackward(SumExpOperation(), {shifted[rank]}, grad_sum)[0];
    AddInto(grad, testing::RunBackward(DotOperation(kOverVocab), {shifted[rank], hot[rank]},
                                       grad_target)[0]);
    EXPECT_TRUE(golden.Matches(grad, absl::StrCat("grad.tp", rank, ".in.logits"), kSequenceFirst));
  }
}

// The proof of the same program with the vocabulary cut over tp.
struct Proof {
  Mesh mesh = *Mesh::Create({.tp = 2});
  AbstractTape tape{mesh};
  Loss loss;

  explicit Proof(const Without& without) {
    const ShardMap cut(kLogits, {{Dim::kVocab, Axis::kTp}});
    Param logits{.name = "logits", .shards = cut};
    loss = Compose(tape, logits, {.name = "one_hot", .shards = cut},
                   {.name = "weights", .shards = ShardMap(kTokens, {})}, without);
    tape.Backward(loss.loss);
  }
  const State& value() const { return tape.value(loss.loss.id); }
  std::string Grad() const { return Describe(tape.grad(loss.logits.id), mesh); }
};

TEST(VocabParallelLoss, IsProvedRight) {
  const Proof proof({});
  ASSERT_TRUE(proof.tape.status().ok()) << proof.tape.status().message();
  EXPECT_EQ(Describe(proof.value(), proof.mesh), "tp: E");
  EXPECT_EQ(proof.Grad(), "tp: S(v)");
}

// An unreduced target logit makes every loss value wrong and no gradient.
TEST(VocabParallelLoss, UnreducedTargetIsWrongInValueOnly) {
  const Proof proof({.target_reduction = true});
  EXPECT_TRUE(proof.value().off) << Describe(proof.value(), proof.mesh);
  EXPECT_EQ(proof.Grad(), "tp: S(v)");
}

// Each rank shifting by its own maximum: nothing is claimed, neither of the value nor of the
// gradient.
TEST(VocabParallelLoss, UnreducedMaximumIsRefused) {
  const Proof proof({.maximum_reduction = true});
  EXPECT_TRUE(proof.value().lost) << Describe(proof.value(), proof.mesh);
  EXPECT_THAT(proof.Grad(), ::testing::StartsWith("lost"));
}

TEST(VocabParallelLoss, UnreducedSumIsRefused) {
  const Proof proof({.sum_reduction = true});
  EXPECT_TRUE(proof.value().lost) << Describe(proof.value(), proof.mesh);
  EXPECT_THAT(proof.Grad(), ::testing::StartsWith("lost"));
}

// Maxima of slices are no terms of a sum: an all-reduce SUM in the place of MAX, or any operation
// that reads them, must not be taken for a multiple of the reference.
TEST(VocabParallelLoss, MaximaAreReadByAllReduceMaxOnly) {
  const Mesh mesh = *Mesh::Create({.tp = 2});
  const Group tp = mesh.GroupOf(Axis::kTp);
  const Dims x = kLogits;
  State cut;
  cut[0] = Shard(Dim::kVocab);
  const Declaration declaration = *MaxOverOperation().Declare({{x}});
  const State maxima = LocalForward(declaration, {{{&x, &cut}}}, 1, 0);
  EXPECT_EQ(Describe(maxima, mesh), "tp: X");
  EXPECT_EQ(Describe(Apply({.map = Map::kMax}, tp, maxima, 0), mesh), "tp: E");
  for (const Map map : {Map::kSum, Map::kAvg, Map::kReduceScatter, Map::kAllGather, Map::kSplit,
                        Map::kPad, Map::kAllToAll, Map::kOwn}) {
    EXPECT_TRUE(Apply({.map = map}, tp, maxima, 0).lost) << Name(map);
  }
  EXPECT_TRUE(LocalForward(*SubtractOperation().Declare({{kTokens, kTokens}}),
                           {{{&kTokens, &maxima}, {&kTokens, &maxima}}}, 1, 0)
                  .lost);
  const DotOperation dot(kOverTokens);
  EXPECT_TRUE(LocalForward(*dot.Declare({{kTokens, kTokens}}),
                           {{{&kTokens, &maxima}, {&kTokens, &maxima}}}, 1, 0)
                  .lost);
}

TEST(Dot, NamesTheMissingDimension) {
  EXPECT_EQ(DotOperation(kOverVocab).Declare({{kTokens, kTokens}}).status().message(),
            "Dot: a is [s=7, b=2], expected the summed dimensions {v} among them");
}

TEST(Shift, RefusesAMaximumOfOtherTokens) {
  const Dims fewer = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 2)};
  EXPECT_EQ(ShiftOperation().Declare({{kLogits, fewer}}).status().message(),
            "Shift: m is [s=6, b=2], expected [s=7, b=2], x without its last");
}

}  // namespace
}  // namespace sumonce

// The layers' golden vectors pin the whole of attention; here what the core alone promises.
#include "spmd/ops/attention.h"

#include "gtest/gtest.h"
#include "spmd/testing/rank_arrays.h"
#include "tests/run_operation.h"

namespace sumonce {
namespace {

constexpr int64_t kPositions = 5, kGroups = 2, kHeads = 3, kWidth = 4;
const Dims kQuery = {Plain(Dim::kSequence, kPositions), Plain(Dim::kBatch, 1),
                     Plain(Dim::kGroup, kGroups), Plain(Dim::kHeadInGroup, kHeads),
                     Plain(Dim::kHeadDim, kWidth)};
const Dims kKey = {kQuery[0], kQuery[1], kQuery[2], kQuery[4]};

std::vector<Tensor> Operands() {
  testing::Numbers numbers("attention", false, -1, 1);
  return {numbers.Fill(kQuery), numbers.Fill(kKey), numbers.Fill(kKey)};
}

// The first position sees itself alone, so its heads hold their group's first value.
TEST(Attention, TheFirstPositionIsItsGroupsValue) {
  const std::vector<Tensor> in = Operands();
  const Tensor out = testing::RunForward(AttentionOperation(), in);
  for (int64_t group = 0; group < kGroups; ++group) {
    for (int64_t i = 0; i < kHeads * kWidth; ++i) {
      EXPECT_EQ(out.data()[group * kHeads * kWidth + i], in[2].data()[group * kWidth + i % kWidth]);
    }
  }
}

// No position reads a later one: a change of the last key and value changes the last row only.
TEST(Attention, IsCausal) {
  const std::vector<Tensor> in = Operands();
  std::vector<Tensor> changed = {in[0], in[1].Clone(), in[2].Clone()};
  const int64_t row = kGroups * kWidth;
  for (size_t operand : {1, 2}) {
    for (int64_t i = 0; i < row; ++i) changed[operand].data()[(kPositions - 1) * row + i] += 1;
  }
  const Tensor before = testing::RunForward(AttentionOperation(), in);
  const Tensor after = testing::RunForward(AttentionOperation(), changed);
  const int64_t last = (kPositions - 1) * row * kHeads;
  for (int64_t i = 0; i < before.count(); ++i) {
    EXPECT_EQ(before.data()[i] == after.data()[i], i < last) << i;
  }
}

// Equal keys: every position is the mean of the values up to it.
TEST(Attention, EqualScoresGiveMeans) {
  std::vector<Tensor> in = Operands();
  in[1] = Tensor(kKey);
  const Tensor out = testing::RunForward(AttentionOperation(), in);
  const int64_t row = kGroups * kWidth;
  const double mean = (in[2].data()[0] + in[2].data()[row] + in[2].data()[2 * row]) / 3;
  EXPECT_NEAR(out.data()[2 * row * kHeads], mean, 1e-15);
}

TEST(Attention, RefusesAnotherNumberOfGroups) {
  Dims few = kKey;
  few[2].units = 1;
  const std::vector<Dims> operands = {kQuery, few, few};
  const absl::Status status = AttentionOperation().Declare(operands).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "Attention: q [s=5, b=1, g=2, q=3, d=4], k [s=5, b=1, g=1, d=4], v [s=5, b=1, g=1, "
            "d=4] must be [s, b, g, q, d], [s, b, g, d], [s, b, g, d], v's d of any extent");
}

}  // namespace
}  // namespace sumonce

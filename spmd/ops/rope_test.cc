#include "spmd/ops/rope.h"

#include "gtest/gtest.h"
#include "tests/golden.h"
#include "tests/run_operation.h"

namespace sumonce {
namespace {

using testing::Golden;
using testing::kSequenceFirst;

Dims HeadDims(int64_t heads) {
  return {Plain(Dim::kSequence, 9), Plain(Dim::kBatch, 2), Plain(Dim::kGroup, heads),
          Plain(Dim::kHeadDim, 10)};
}

// The golden case rotates by given tables, rounded to float32.
RopeOptions GoldenOptions(const Golden& golden) {
  RopeOptions options;
  options.rotary_dim = 6;
  const Dims table = {Plain(Dim::kSequence, 9), Plain(Dim::kHeadDim, 6)};
  const auto read = [&](const char* name) {
    const Tensor tensor = golden.Get(name, table);
    return std::vector<double>(tensor.values().begin(), tensor.values().end());
  };
  options.cos = read("in.cos");
  options.sin = read("in.sin");
  return options;
}

TEST(Rope, MatchesGolden) {
  const Golden golden("rope_partial");
  const RopeOperation operation(GoldenOptions(golden));
  for (const auto& [name, heads] : {std::pair("q", 4), std::pair("k", 2)}) {
    const std::string stem = name;
    const Tensor x = golden.Get("in." + stem, HeadDims(heads), kSequenceFirst);
    EXPECT_TRUE(golden.Matches(testing::RunForward(operation, {x}), "out." + stem, kSequenceFirst));
    const Tensor up = golden.Get("up.out." + stem, HeadDims(heads), kSequenceFirst);
    const auto grads = testing::RunBackward(operation, {x}, up);
    EXPECT_TRUE(golden.Matches(grads[0], "grad.in." + stem, kSequenceFirst));
  }
}

// The computed tables are the given ones before their rounding to float32.
TEST(Rope, ComputedTablesAreTheGivenOnes) {
  const Golden golden("rope_partial");
  RopeOptions computed;
  computed.rotary_dim = 6;
  const Tensor x = golden.Get("in.q", HeadDims(4), kSequenceFirst);
  EXPECT_TRUE(golden.Matches(testing::RunForward(RopeOperation(computed), {x}), "out.q",
                             kSequenceFirst, 1e-6));
}

TEST(Rope, RefusesMorePositionsThanTheTablesHave) {
  RopeOptions options = GoldenOptions(Golden("rope_partial"));
  const std::vector<Dims> longer = {{Plain(Dim::kSequence, 10), Plain(Dim::kHeadDim, 6)}};
  const absl::Status status = RopeOperation(options).Declare(longer).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "Rope: x [s=10, d=6] has more positions than the 9 of the given tables");
}

}  // namespace
}  // namespace sumonce

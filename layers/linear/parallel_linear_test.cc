#include "layers/linear/parallel_linear.h"

#include "gmock/gmock.h"
#include "layers/testing/run.h"

namespace sumonce::testing {
namespace {

using ::testing::HasSubstr;

const DimExtent kPositions = Plain(Dim::kSequence, 8), kSamples = Plain(Dim::kBatch, 2);
const DimExtent kO = Plain(Dim::kOut, 8), kI = Plain(Dim::kIn, 12);

LayerCase Column() {
  LayerCase setup = {.x = Random("x", {kPositions, kSamples, kI}),
                     .up = Random("up", {kPositions, kSamples, kO})};
  setup.y_cuts = {{Dim::kOut, Axis::kTp}};
  setup.y_over_sequence = false;
  setup.build = [](const Builder& builder) {
    const LinearConfig config = {
        .out = {kO}, .in = {kI}, .cut = Dim::kOut, .bias = true, .layer_norm = true};
    auto linear = std::make_shared<ColumnParallelLinear>(builder.Child("linear"), config);
    return [linear](Tape& tape, Value x) { return linear->Forward(tape, x); };
  };
  return setup;
}

LayerCase Row() {
  LayerCase setup = {.x = Random("x", {kPositions, kSamples, kI}),
                     .up = Random("up", {kPositions, kSamples, kO})};
  setup.x_cuts = {{Dim::kIn, Axis::kTp}};
  setup.x_over_sequence = false;
  setup.build = [](const Builder& builder) {
    const LinearConfig config = {.out = {kO}, .in = {kI}, .cut = Dim::kIn, .bias = true};
    auto linear = std::make_shared<RowParallelLinear>(builder.Child("linear"), config);
    return [linear](Tape& tape, Value x) { return linear->Forward(tape, x); };
  };
  return setup;
}

// A column-parallel linear built for sequence parallelism whose module attribute is off at the
// call.
LayerCase ToggledColumn() {
  LayerCase setup = Column();
  setup.x_over_sequence = false;
  setup.build = [build = setup.build](const Builder& builder) {
    const LinearConfig config = {.out = {kO}, .in = {kI}, .cut = Dim::kOut, .layer_norm = true};
    auto linear = std::make_shared<ColumnParallelLinear>(builder.Child("linear"), config);
    return [linear](Tape& tape, Value x) {
      std::vector<ToggleableModule> modules;
      linear->CollectModules(modules);
      *modules[0].sequence_parallel = false;
      return linear->Forward(tape, x);
    };
  };
  return setup;
}

TEST(ColumnParallelLinear, ShardsReproduceTheUnsharded) {
  ExpectReproducesUnsharded(Column(), /*sequence_parallel=*/true, {"linear.layer_norm_weight"});
  ExpectReproducesUnsharded(Column(), /*sequence_parallel=*/false, {});
}

TEST(RowParallelLinear, ShardsReproduceTheUnsharded) {
  ExpectReproducesUnsharded(Row(), /*sequence_parallel=*/true, {"linear.bias"});
  ExpectReproducesUnsharded(Row(), /*sequence_parallel=*/false, {});
}

// Added to the ranks' terms the bias counts tp times, unless each rank adds its share of it: equal
// shares, or all of it on one rank. Then each rank's gradient is a share too, and all ranks hold
// terms, with and without sequence parallelism.
TEST(RowParallelLinear, ABiasBeforeTheReductionIsATerm) {
  for (const bool sequence_parallel : {false, true}) {
    LayerCase row = Row();
    const Outcome whole = RunLayer(row);
    row.config.row_bias = RowBias::kBeforeReductionByOwner;
    ExpectReproducesUnsharded(row, sequence_parallel, {"linear.bias"});
    const Outcome owner = RunLayer(row, {.tp = 2}, sequence_parallel);
    EXPECT_TRUE(AllClose(owner.ranks[0].param_grads.at("linear.bias"), whole.Whole("linear.bias")));
    EXPECT_TRUE(AllClose(owner.ranks[1].param_grads.at("linear.bias"), Tensor({kO})));

    row.config.row_bias = RowBias::kBeforeReductionDivided;
    const Outcome divided = RunLayer(row, {.tp = 2}, sequence_parallel);
    EXPECT_TRUE(AllClose(divided.WholeY(), whole.WholeY()));
    EXPECT_EQ(divided.StateText("linear.bias"), "tp: E, times 1/tp");

    row.config.row_bias = RowBias::kBeforeReduction;
    EXPECT_TRUE(RunLayer(row, {.tp = 2}, sequence_parallel).y_state.off);
  }
}

// The second founding case in small: the toggle makes the norm's gradient complete, and leaves the
// mark that asks for a sum.
TEST(ColumnParallelLinear, ToggledModuleHasACompleteGradientUnderItsMark) {
  ExpectReproducesUnsharded(ToggledColumn(), /*sequence_parallel=*/true, {});
  const Outcome two = RunLayer(ToggledColumn(), {.tp = 2}, /*sequence_parallel=*/true);
  EXPECT_EQ(two.StateText("linear.layer_norm_weight"), "tp: E");
  EXPECT_TRUE(two.ranks[0].marks.at("linear.layer_norm_weight").sequence_parallel);
  EXPECT_EQ(two.ranks[0].values.count("linear/AllGather#0"), 0u);
}

TEST(ParallelLinear, MarksAreMegatrons) {
  const Outcome column = RunLayer(Column(), {.tp = 2}, true),
                row = RunLayer(Row(), {.tp = 2}, true);
  const auto& column_marks = column.ranks[0].marks;
  const auto& row_marks = row.ranks[0].marks;
  EXPECT_EQ(column_marks.at("linear.weight"),
            (Marks{.tensor_model_parallel = true, .partition_dim = 0}));
  EXPECT_EQ(column_marks.at("linear.bias"), column_marks.at("linear.weight"));
  EXPECT_EQ(column_marks.at("linear.layer_norm_weight"), (Marks{.sequence_parallel = true}));
  EXPECT_EQ(row_marks.at("linear.weight"),
            (Marks{.tensor_model_parallel = true, .partition_dim = 1}));
  EXPECT_EQ(row_marks.at("linear.bias"), (Marks{.sequence_parallel = true}));
  EXPECT_EQ(RunLayer(Row(), {.tp = 2}, false).ranks[0].marks.at("linear.bias"), Marks());
}

TEST(ParallelLinear, RefusesAnotherInput) {
  LayerCase column = Column();
  column.x = Random("x", {kPositions, kSamples, Plain(Dim::kIn, 11)});
  EXPECT_THAT(std::string(RunLayer(column).status.message()), HasSubstr("linear/RmsNorm#0"));
  LayerCase row = Row();
  row.x = Random("x", {kPositions, kSamples, Plain(Dim::kIn, 14)});
  EXPECT_THAT(std::string(RunLayer(row, {.tp = 2}).status.message()),
              HasSubstr("linear/Linear#0: Linear: x [s=8, b=2, i=7] and weight [o=8, i=6]"));
}

// 7 tokens cannot be scattered over 2 ranks.
TEST(RowParallelLinear, RefusesASequenceThatDoesNotDivide) {
  LayerCase row = Row();
  row.x = Random("x", {Plain(Dim::kSequence, 7), kSamples, kI});
  EXPECT_THAT(std::string(RunLayer(row, {.tp = 2}, true).status.message()),
              HasSubstr("linear/ReduceScatter#0: dimension s of"));
}

}  // namespace
}  // namespace sumonce::testing

// Loss scales against Megatron's schedule, DDP and finalizer on 2 x 2 ranks of dp and cp (golden
// file loss_scale): its cells are run here as four ranks of dp, which is the same for the two modes
// that know no cp.
#include <gtest/gtest.h>

#include "base/status.h"
#include "comm/transport.h"
#include "layers/embedding/vocab_parallel.h"
#include "layers/loss/cross_entropy.h"
#include "sim/finalize/finalizer.h"
#include "spmd/numeric_tape.h"
#include "tests/golden.h"

namespace sumonce {
namespace {

using testing::AllClose;

constexpr int kRanks = 4, kMicrobatches = 2;
constexpr int64_t kTokens = 6, kVocab = 10, kHidden = 8;
constexpr double kCounted = 32;  // tokens of all cells
const Dims kCell = {Plain(Dim::kSequence, kTokens), Plain(Dim::kBatch, 1)};
const Dims kWeight = {Plain(Dim::kVocab, kVocab), Plain(Dim::kHidden, kHidden)};

// What one rank leaves: each cell's loss and gradient, and the gradient behind the finalizer.
struct RankResult {
  std::vector<double> losses;
  std::vector<Tensor> grads;
  Tensor finalized;
};

class LossScaleGolden : public ::testing::Test {
 protected:
  // Of cell (rank, microbatch), [t, ...] as [s, b, ...].
  Tensor Cell(const std::string& name, int rank, int microbatch,
              const std::vector<DimExtent>& more = {}) const {
    Dims dims = kCell;
    dims.insert(dims.end(), more.begin(), more.end());
    const int64_t count = Count(dims);
    const Tensor all = golden_.Expected(name, {Plain(Dim::kIn, count * kRanks * kMicrobatches)});
    const double* begin = all.data() + (rank * kMicrobatches + microbatch) * count;
    return Tensor(dims, std::vector<double>(begin, begin + count));
  }

  double Counted(int rank, int microbatch) const {
    const Tensor mask = Cell("in.loss_mask", rank, microbatch);
    double count = 0;
    for (const double counts : mask.values()) count += counts;
    return count;
  }

  // The loss of one cell: its tokens' sum, or with `mean` their mean over the microbatches.
  Value Loss(Tape& tape, ColumnParallelLinear& output, int rank, int microbatch, bool mean) {
    inputs_[rank].clear();
    const auto constant = [&](const char* name, Tensor whole) {
      inputs_[rank].push_back(std::make_unique<Tensor>(std::move(whole)));
      const Tensor* stored = inputs_[rank].back().get();
      return tape.Constant({.name = name, .shards = ShardMap(stored->dims(), {}), .whole = stored});
    };
    const Tensor ids = Cell("in.targets", rank, microbatch);
    Tensor targets({kCell[0], kCell[1], Plain(Dim::kVocab, kVocab)});
    for (int64_t t = 0; t < kTokens; ++t)
      targets.data()[t * kVocab + static_cast<int64_t>(ids.data()[t])] = 1;
    Tensor weights = Cell("in.loss_mask", rank, microbatch);
    if (mean) ScaleInto(weights, 1 / (Counted(rank, microbatch) * kMicrobatches));
    const Value x = constant("x", Cell("in.x", rank, microbatch, {Plain(Dim::kHidden, kHidden)}));
    const Value logits = output.Forward(tape, x);
    const Value losses = VocabParallelCrossEntropy(tape, logits, constant("targets", targets));
    return WeightedSum(tape, losses, constant("weights", weights));
  }

  absl::Status RunRank(Communicator& world, const Mesh& mesh, bool per_token, RankResult& result) {
    const int rank = world.rank();
    SUMONCE_ASSIGN_OR_RETURN(
        const GroupComms comms,
        GroupComms::Create(world, mesh, {mesh.GroupOf(Axis::kTp), mesh.GroupOf(Axis::kDp)}));
    const LayerConfig config;
    ParamStore params;
    ColumnParallelLinear output = OutputLayer(Builder(config, params).Child("output_layer"),
                                              {.vocab = kVocab, .hidden = kHidden});
    Param& weight = *params.Find("output_layer.weight");
    weight.weight = golden_.Get("param.weight", kWeight);
    weight.main_grad = Tensor(kWeight);
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      NumericTape tape(mesh, rank, &comms);
      const Value loss = Loss(tape, output, rank, microbatch, !per_token);
      tape.Backward(loss);
      SUMONCE_RETURN_IF_ERROR(tape.status());
      result.losses.push_back(tape.value(loss).data()[0]);
      for (size_t id = 0; id < tape.nodes().size(); ++id) {
        if (tape.nodes()[id].param == &weight)
          result.grads.push_back(tape.grad(static_cast<int>(id)).Clone());
      }
      AddInto(weight.main_grad, result.grads.back());
    }
    SUMONCE_ASSIGN_OR_RETURN(const FinalizePreset preset, Finalizers().Find("megatron_core_0_16"));
    for (const FinalizeStep& step : preset.steps) {
      SUMONCE_RETURN_IF_ERROR(RunFinalizeStep(step, {.per_token_loss = per_token}, mesh, rank,
                                              &comms, kCounted, DType::kFloat64, params.all()));
    }
    result.finalized = weight.main_grad;
    return absl::OkStatus();
  }

  std::vector<RankResult> Run(bool per_token) {
    const Mesh mesh = *Mesh::Create({.dp = kRanks});
    std::vector<RankResult> results(kRanks);
    const Transport* transport = *Transports().Find("in_process");
    const absl::Status status = transport->run({.world_size = kRanks}, [&](Communicator& world) {
      return RunRank(world, mesh, per_token, results[world.rank()]);
    });
    EXPECT_TRUE(status.ok()) << status;
    return results;
  }

  const testing::Golden golden_{"loss_scale"};
  std::vector<std::unique_ptr<Tensor>> inputs_[kRanks];
};

Tensor Stacked(const std::vector<RankResult>& results) {
  std::vector<double> all;
  for (const RankResult& rank : results) {
    for (const Tensor& grad : rank.grads)
      all.insert(all.end(), grad.data(), grad.data() + grad.count());
  }
  return Tensor({Plain(Dim::kIn, static_cast<int64_t>(all.size()))}, all);
}

// Every cell's sum, summed once and divided by all counted tokens: the reference, whatever the
// cells count.
TEST_F(LossScaleGolden, PerTokenIsTheReference) {
  const std::vector<RankResult> results = Run(/*per_token=*/true);
  const Tensor losses =
      golden_.Expected("out.cell_loss", {Plain(Dim::kIn, kRanks * kMicrobatches)});
  const Tensor counts =
      golden_.Expected("out.cell_tokens", {Plain(Dim::kIn, kRanks * kMicrobatches)});
  const Tensor kappa =
      golden_.Expected("out.per_token.kappa", {Plain(Dim::kIn, kRanks * kMicrobatches)});
  EXPECT_TRUE(golden_.Matches(Stacked(results), "out.cell_grad"));
  double counted = 0;
  for (int cell = 0; cell < kRanks * kMicrobatches; ++cell) {
    const int rank = cell / kMicrobatches, microbatch = cell % kMicrobatches;
    EXPECT_NEAR(results[rank].losses[microbatch], losses.data()[cell], 1e-12);
    EXPECT_EQ(Counted(rank, microbatch), counts.data()[cell]);
    EXPECT_EQ(kappa.data()[cell], 1);
    counted += counts.data()[cell];
  }
  EXPECT_EQ(counted, kCounted);
  for (const RankResult& rank : results) {
    EXPECT_TRUE(golden_.Matches(rank.finalized, "out.per_token.grad"));
    EXPECT_TRUE(golden_.Matches(rank.finalized, "out.reference_grad"));
  }
}

// The mean of means weighs a cell's tokens by N / (cells * its own count).
TEST_F(LossScaleGolden, MeanOfCellsWeighsThemAlike) {
  const std::vector<RankResult> results = Run(/*per_token=*/false);
  for (const RankResult& rank : results) {
    EXPECT_TRUE(golden_.Matches(rank.finalized, "out.mean_of_cells.grad"));
    EXPECT_FALSE(golden_.Matches(rank.finalized, "out.reference_grad"));
  }
  const Tensor kappa =
      golden_.Expected("out.mean_of_cells.kappa", {Plain(Dim::kIn, kRanks * kMicrobatches)});
  for (int cell = 0; cell < kRanks * kMicrobatches; ++cell) {
    const double expected =
        kCounted / (kRanks * kMicrobatches * Counted(cell / kMicrobatches, cell % kMicrobatches));
    EXPECT_NEAR(kappa.data()[cell], expected, 1e-12);
  }
}

}  // namespace
}  // namespace sumonce

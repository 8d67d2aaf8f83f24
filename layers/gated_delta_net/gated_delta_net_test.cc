#include "layers/gated_delta_net/gated_delta_net.h"

#include "gmock/gmock.h"
#include "layers/testing/fused.h"
#include "spmd/ops/concat.h"
#include "spmd/ops/take_range.h"

namespace sumonce::testing {
namespace {

using ::testing::HasSubstr;

const std::string kAt = "self_attention.";

LayerCase WithConfig(const GatedDeltaNetConfig& config, const Tensor& x, const Tensor& up) {
  LayerCase setup = {.x = x, .up = up};
  setup.build = [config](const Builder& builder) {
    auto layer = std::make_shared<GatedDeltaNet>(builder.Child("self_attention"), config);
    return [layer](Tape& tape, Value value) { return layer->Forward(tape, value); };
  };
  return setup;
}

// The golden layer: no norm in front.
GatedDeltaNetConfig Bare(GdnPacking packing) {
  return {.packing = packing, .decoupled_norm = true};
}

LayerCase GoldenLayer(const Golden& golden, GdnPacking packing, const std::string& full = "") {
  return WithConfig(Bare(packing), Activation(golden, full + "in.x", Dim::kHidden),
                    Activation(golden, "up." + full + "out.y", Dim::kHidden));
}

// Token by token and by chunks; over one sequence and over packed ones.
TEST(GatedDeltaNet, MatchesGoldenInTheFlatForm) {
  for (const char* file : {"gdn_layer_flat", "gdn_layer_packed"}) {
    const Golden golden(file);
    const Correspondence names = FlatGdnNames(Bare(GdnPacking::kMegatron), kAt, "param.");
    for (const int64_t chunk : {0, 4}) {
      GatedDeltaNetConfig config = Bare(GdnPacking::kMegatron);
      config.chunk_size = chunk;
      LayerCase setup = GoldenLayer(golden, GdnPacking::kMegatron);
      setup.build = WithConfig(config, setup.x, setup.up).build;
      setup.weights = LoadWeights(golden, names);
      if (golden.Has("in.cu_seqlens")) setup.pass.sequence_starts = Starts(golden);
      for (const int tp : {1, 2}) ExpectMatchesGolden(golden, names, RunLayer(setup, {.tp = tp}));
    }
  }
}

std::vector<int64_t> Permutation(const Golden& golden, const std::string& name) {
  const Tensor rows = Matrix(golden, name);
  return {rows.values().begin(), rows.values().end()};
}

// Qwen3-Next's two matrices, per key head; their permutations name the flat rows.
TEST(GatedDeltaNet, MatchesGoldenInTheGroupedForm) {
  const Golden golden("gdn_layer_grouped");
  Correspondence names = FlatGdnNames(Bare(GdnPacking::kMegatron), kAt, "param.");
  names.linears[0].projections = {
      {"param.in_proj_qkvz", Permutation(golden, "in.perm_qkvz")},
      {"param.in_proj_ba", Permutation(golden, "in.perm_ba")},
  };
  LayerCase setup = GoldenLayer(golden, GdnPacking::kMegatron);
  setup.weights = LoadWeights(golden, names);
  ExpectMatchesGolden(golden, names, RunLayer(setup));
}

// Per key head in both in_proj and conv1d: our other packing, as it lies.
TEST(GatedDeltaNet, MatchesGoldenInTheBridgesPacking) {
  const Golden golden("gdn_layer_bridge_packed");
  Correspondence names = FlatGdnNames(Bare(GdnPacking::kPerKeyHead), kAt, "param.");
  names.linears[0].projections = {{"param.in_proj", Range(0, 72)}};
  LayerCase setup = GoldenLayer(golden, GdnPacking::kPerKeyHead);
  setup.weights = LoadWeights(golden, names);
  for (const int tp : {1, 2}) ExpectMatchesGolden(golden, names, RunLayer(setup, {.tp = tp}));
}

// The stored permutations lead from the flat form to the bridge's, which is how DimExtent counts.
TEST(GatedDeltaNet, PackingsOfGoldenFilesArePermutationsOfEachOther) {
  const Golden flat("gdn_layer_flat"), bridge("gdn_layer_bridge_packed");
  std::vector<double> rows;
  for (const char* name : {"qkv", "z", "b", "a"}) {
    const Tensor part = Matrix(flat, std::string("param.in_proj_") + name);
    rows.insert(rows.end(), part.data(), part.data() + part.count());
  }
  const Tensor all({Plain(Dim::kOut, 72), Plain(Dim::kIn, 16)}, rows);
  EXPECT_TRUE(
      bridge.Matches(GatherRows(all, Permutation(bridge, "in.perm_in_proj")), "param.in_proj"));
  const std::vector<int64_t> channels = Permutation(bridge, "in.perm_conv1d");
  EXPECT_TRUE(bridge.Matches(GatherRows(Matrix(flat, "param.conv1d"), channels), "param.conv1d"));
  DimExtent unit_major = {
      .dim = Dim::kKeyHead, .units = 2, .parts = {6, 6, 10}, .packing = Packing::kUnitMajor};
  DimExtent part_major = unit_major;
  part_major.packing = Packing::kPartMajor;
  for (int64_t unit = 0; unit < 2; ++unit) {
    for (size_t part = 0; part < 3; ++part) {
      EXPECT_EQ(channels[unit_major.Index(unit, part, 1)], part_major.Index(unit, part, 1));
    }
  }
}

// Our names of a golden file's rank tensors.
std::vector<std::pair<std::string, std::string>> RankNames(bool lora) {
  std::vector<std::pair<std::string, std::string>> names = {
      {"x", "in.x"},
      {kAt + "conv1d.weight", "param.conv1d"},
      {kAt + "A_log", "param.A_log"},
      {kAt + "dt_bias", "param.dt_bias"},
      {kAt + "out_norm.weight", "param.norm"},
  };
  for (const std::string module : {"in_proj", "out_proj"}) {
    names.push_back({kAt + module + ".weight", "param." + module + (lora ? ".weight" : "")});
    if (!lora) continue;
    names.push_back({kAt + module + ".lora_A", "param." + module + ".lora_A"});
    names.push_back({kAt + module + ".lora_B", "param." + module + ".lora_B"});
  }
  return names;
}

// Every rank tensor, [s, b, h], is a value or gradient before any communication.
void ExpectRankPieces(const Golden& golden, const LayerCase& setup, bool lora) {
  const Outcome two = RunLayer(setup, {.tp = 2}, false, DropCommunication);
  ASSERT_TRUE(two.status.ok()) << two.status;
  ExpectRanksHold(golden, two, RankNames(lora), "out.y_partial", kAsStored);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string tp = "tp" + std::to_string(rank) + ".";
    EXPECT_TRUE(golden.Matches(two.ranks[rank].y, tp + "out.y_partial"));
    for (const auto& [ours, theirs] : RankNames(lora)) {
      EXPECT_TRUE(golden.Matches(two.ranks[rank].param_grads.at(ours), "grad." + tp + theirs))
          << ours;
    }
  }
}

TEST(GatedDeltaNet, MatchesGoldenRankPieces) {
  const Golden golden("gdn_layer_mcore_tp2");
  const Correspondence names = FlatGdnNames(Bare(GdnPacking::kMegatron), kAt, "full.param.");
  LayerCase setup = GoldenLayer(golden, GdnPacking::kMegatron, "full.");
  setup.weights = LoadWeights(golden, names);
  ExpectRankPieces(golden, setup, /*lora=*/false);
  // The same pieces inside the sound layer: partial sums in front of its reductions.
  const Outcome two = RunLayer(setup, {.tp = 2});
  ASSERT_TRUE(two.status.ok()) << two.status;
  EXPECT_TRUE(
      golden.Matches(two.ranks[1].values.at(kAt + "out_proj/Linear#0"), "tp1.out.y_partial"));
  EXPECT_TRUE(golden.Matches(two.ranks[1].grads.at(kAt + "in_proj/Copy#0"), "grad.tp1.in.x"));
  EXPECT_TRUE(golden.Matches(two.WholeY(), "full.out.y", kSequenceFirst));
  EXPECT_TRUE(golden.Matches(two.Whole("x"), "grad.full.in.x", kSequenceFirst));
  ExpectGradients(golden, names, [&](const std::string& name) { return two.Whole(name); });
}

TEST(GatedDeltaNet, MatchesGoldenRankPiecesWithFusedAdapters) {
  const Golden golden("gdn_layer_lora_fused_tp2");
  Correspondence names = FlatGdnNames(Bare(GdnPacking::kMegatron), kAt, "full.param.");
  names.linears[0].projections = {{"full.param.in_proj", Range(0, 72)}};
  LayerCase setup = GoldenLayer(golden, GdnPacking::kMegatron, "full.");
  setup.weights = LoadWeights(golden, names);
  setup.config.lora = {.enabled = true, .r = 3, .targets = {"in_proj", "out_proj"}};
  setup.config.train_base = true;
  ExpectRankPieces(golden, setup, /*lora=*/true);
  for (const int tp : {1, 2}) {
    const Outcome sound = RunLayer(setup, {.tp = tp});
    EXPECT_TRUE(golden.Matches(sound.WholeY(), "full.out.y", kSequenceFirst));
    EXPECT_TRUE(golden.Matches(sound.Whole("x"), "grad.full.in.x", kSequenceFirst));
    ExpectGradients(golden, names, [&](const std::string& name) { return sound.Whole(name); });
  }
}

GatedDeltaNetConfig Small(GatedDeltaNetConfig config) {
  config.hidden = 6;
  config.num_key_heads = 4;
  config.num_value_heads = 8;
  config.key_head_dim = 3;
  config.value_head_dim = 2;
  return config;
}

LayerCase RandomLayer(const GatedDeltaNetConfig& config) {
  const Dims dims = {Plain(Dim::kSequence, 8), Plain(Dim::kBatch, 2), Plain(Dim::kHidden, 6)};
  LayerCase setup = WithConfig(Small(config), Random("x", dims), Random("up", dims));
  setup.config.lora = {.enabled = true, .r = 2, .targets = {"in_proj", "out_proj"}};
  setup.config.train_base = true;
  return setup;
}

TEST(GatedDeltaNet, ShardsReproduceTheUnsharded) {
  for (const GdnPacking packing : {GdnPacking::kMegatron, GdnPacking::kPerKeyHead}) {
    const LayerCase setup = RandomLayer({.packing = packing});
    ExpectReproducesUnsharded(setup, /*sequence_parallel=*/true,
                              {kAt + "in_proj.layer_norm_weight", kAt + "in_proj.lora_A",
                               kAt + "out_proj.lora_B", kAt + "out_norm.weight"});
    ExpectReproducesUnsharded(setup, /*sequence_parallel=*/false, {kAt + "out_norm.weight"});
  }
  EXPECT_EQ(RunLayer(RandomLayer({}), {.tp = 2}, true).StateText(kAt + "out_norm.weight"),
            "tp: P(k)");
}

// Inside the region the input norm and the replicated factors see all tokens, and in_proj sums its
// dgrad itself: their gradients are complete, whatever their marks ask for.
TEST(GatedDeltaNet, GatherRegionLeavesOnlyOutNormPartial) {
  const LayerCase setup = RandomLayer({.mode = GdnMode::kGatherRegion});
  ExpectReproducesUnsharded(setup, /*sequence_parallel=*/true, {kAt + "out_norm.weight"});
  ExpectReproducesUnsharded(setup, /*sequence_parallel=*/false, {kAt + "out_norm.weight"});
  const Outcome two = RunLayer(setup, {.tp = 2}, true);
  EXPECT_EQ(two.StateText(kAt + "in_proj.layer_norm_weight"), "tp: E");
  EXPECT_EQ(two.StateText(kAt + "in_proj.lora_A"), "tp: E");
}

TEST(GatedDeltaNet, AdaptersOfSubProjectionsReproduceTheUnsharded) {
  for (const GdnPacking packing : {GdnPacking::kMegatron, GdnPacking::kPerKeyHead}) {
    LayerCase setup = RandomLayer({.packing = packing});
    setup.config.lora.per_sub_projection = true;
    ExpectReproducesUnsharded(setup, /*sequence_parallel=*/true,
                              {kAt + "in_proj.layer_norm_weight", kAt + "in_proj.in_proj_*.lora_A",
                               kAt + "out_proj.lora_B", kAt + "out_norm.weight"});
  }
}

// A sequence in two pieces, the second from what the first leaves, is the sequence in one: y and
// every gradient, those through the carried window and state included.
TEST(GatedDeltaNet, CarriesWindowAndStateFromPieceToPiece) {
  for (const int64_t chunk : {0, 3}) {
    const GatedDeltaNetConfig config = {.conv_bias = true, .chunk_size = chunk};
    LayerCase whole = RandomLayer(config);
    LayerCase pieces = whole;
    pieces.build = [small = Small(config)](const Builder& builder) {
      auto layer = std::make_shared<GatedDeltaNet>(builder.Child("self_attention"), small);
      return [layer](Tape& tape, Value x) {
        GdnCarry carry;
        const auto piece = [&](int64_t first, int64_t count) {
          const Value own = TakeRange(
              tape, x,
              {.dim = Dim::kSequence, .first = first, .count = count, .as = Dim::kSequence});
          return layer->Forward(tape, own, &carry);
        };
        const Value first = piece(0, 5);
        return Concat(tape, first, piece(5, 3), Dim::kSequence);
      };
    };
    const Outcome one = RunLayer(whole), two = RunLayer(pieces);
    ASSERT_TRUE(two.status.ok()) << two.status;
    EXPECT_TRUE(AllClose(two.WholeY(), one.WholeY()));
    for (const auto& [name, state] : one.states)
      EXPECT_TRUE(AllClose(two.Whole(name), one.Whole(name))) << name;
  }
}

// One test for the three ways to project and the bias of the convolution.
TEST(GatedDeltaNet, DecoupledProjectionsReproduceTheUnsharded) {
  GatedDeltaNetConfig config = {.decoupled_projections = true, .conv_bias = true};
  config.decoupled_norm = true;
  LayerCase setup = RandomLayer(config);
  setup.config.lora.targets = {"in_proj_*", "out_proj"};
  ExpectReproducesUnsharded(
      setup, /*sequence_parallel=*/true,
      {kAt + "in_proj_*.lora_A", kAt + "out_proj.lora_B", kAt + "out_norm.weight"});
  ExpectReproducesUnsharded(setup, /*sequence_parallel=*/false, {kAt + "out_norm.weight"});
}

// Hugging Face's layer whole on every rank. Scattered, each rank's gradients are complete; divided,
// each holds a share, which is right only where a finalizer sums it.
TEST(GatedDeltaNet, ReplicasHoldCompleteGradientsOrEqualShares) {
  for (const GdnMode mode : {GdnMode::kReplicaScattered, GdnMode::kReplicaDivided}) {
    const LayerCase setup = RandomLayer({.mode = mode, .decoupled_norm = true});
    ExpectReproducesUnsharded(setup, /*sequence_parallel=*/false, {});
    const Outcome one = RunLayer(setup);
    const Outcome two = RunLayer(setup, {.tp = 2}, /*sequence_parallel=*/true);
    EXPECT_TRUE(AllClose(two.WholeY(), one.WholeY()));
    EXPECT_TRUE(AllClose(two.Whole("x"), one.Whole("x")));
    const bool divided = mode == GdnMode::kReplicaDivided;
    for (const char* name : {"in_proj.weight", "in_proj.lora_A", "conv1d.weight", "A_log",
                             "out_norm.weight", "out_proj.lora_B"}) {
      EXPECT_EQ(two.StateText(kAt + name), divided ? "tp: E, times 1/tp" : "tp: E") << name;
      EXPECT_TRUE(two.ranks[0].marks.at(kAt + name).average_gradients_across_tp_domain);
      Tensor expected = one.Whole(kAt + name).Clone();
      if (divided) ScaleInto(expected, 0.5);
      for (const RankTensors& rank : two.ranks)
        EXPECT_TRUE(AllClose(rank.param_grads.at(kAt + name), expected)) << name;
    }
  }
}

TEST(GatedDeltaNet, RegionMarksDecideWhatTheFinalizerSees) {
  for (const auto& [region, marked] :
       std::vector<std::pair<RegionMarks, bool>>{{RegionMarks::kLeaveOff, false},
                                                 {RegionMarks::kKeep, true},
                                                 {RegionMarks::kToggleAndRestore, true}}) {
    const LayerCase setup = RandomLayer({.mode = GdnMode::kGatherRegion, .region_marks = region});
    const Outcome two = RunLayer(setup, {.tp = 2}, true);
    ASSERT_TRUE(two.status.ok()) << two.status;
    const auto& marks = two.ranks[1].marks;
    for (const char* name : {"in_proj.layer_norm_weight", "in_proj.lora_A", "out_proj.lora_B"}) {
      EXPECT_EQ(marks.at(kAt + name).sequence_parallel, marked) << name;
    }
    EXPECT_TRUE(marks.at(kAt + "out_norm.weight").sequence_parallel);  // outside the region
    EXPECT_FALSE(marks.at(kAt + "in_proj.lora_B").sequence_parallel);  // never carried it
    EXPECT_TRUE(marks.at(kAt + "in_proj.lora_B").tensor_model_parallel);
  }
}

// A wrapper toggled without what it wraps: lora_B gathers the gathered tokens again.
TEST(GatedDeltaNet, AdapterOutsideTheToggleIsRefused) {
  const LayerCase setup = RandomLayer({.mode = GdnMode::kGatherRegion});
  const Outcome two = RunLayer(setup, {.tp = 2}, true, [](const std::string& name, Collective& c) {
    if (name != kAt + "in_proj.lora_B/Copy#0") return;
    c.forward = {.map = Map::kAllGather, .dim = Dim::kSequence};
    c.backward = {.map = Map::kReduceScatter, .dim = Dim::kSequence};
  });
  EXPECT_THAT(std::string(two.status.message()), HasSubstr("in_proj/Add#0: Add: a [s=8"));
}

TEST(GatedDeltaNet, RefusesAnotherWidth) {
  LayerCase setup = RandomLayer({});
  setup.build = WithConfig({.hidden = 7, .decoupled_norm = true}, setup.x, setup.up).build;
  EXPECT_THAT(std::string(RunLayer(setup).status.message()), HasSubstr("in_proj/Linear#0"));
}

}  // namespace
}  // namespace sumonce::testing

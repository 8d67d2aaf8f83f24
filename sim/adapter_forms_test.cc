#include "sim/adapter_forms.h"

#include <gmock/gmock.h>

#include <cmath>

#include "sim/simulator.h"
#include "tests/golden.h"

namespace sumonce {
namespace {

using ::sumonce::testing::AllClose;

// Every fused target of a hybrid model, in a packing of units and one of parts.
Scenario Hybrid(int64_t r, bool per_sub_projection) {
  Scenario scenario;
  scenario.model.layers.resize(2);
  scenario.model.layers[0].mixer = GatedDeltaNetConfig();
  scenario.model.layers[1].mixer = SelfAttentionConfig{.qk_layernorm = false, .output_gate = true};
  for (DecoderLayerConfig& layer : scenario.model.layers) layer.mlp = MlpConfig();
  scenario.model.common.lora = {.enabled = true,
                                .r = r,
                                .scaling = 2.0,
                                .targets = {"linear_qkv", "linear_fc1", "in_proj", "linear_proj"},
                                .zero_init_B = false,
                                .per_sub_projection = per_sub_projection};
  return scenario;
}

// The loss and the gradient of the embedding, which all adapters have a part in.
StepRecord Step(const Scenario& scenario, const Weights& base, const Weights& adapters) {
  Weights weights = base;
  for (const auto& [name, weight] : adapters) weights[name] = weight;
  Scenario trained = scenario;
  trained.model.common.train_base = true;
  const SimResult result = SimulateReference(trained, weights, 1, 1, SimOptions());
  EXPECT_TRUE(result.status.ok()) << result.status;
  return result.record.ranks[0][0];
}

void ExpectSameModel(const Scenario& from, const Scenario& to) {
  Model from_model(EffectiveModel(from)), to_model(EffectiveModel(to));
  const Weights start = *StartWeights(from, from_model.params());
  const auto converted = ConvertAdapters(to.model, start, to_model.params());
  ASSERT_TRUE(converted.ok()) << converted.status();
  Weights base;
  for (const Param& param : to_model.params().all()) {
    const auto found = start.find(param.name);
    if (found != start.end()) base[param.name] = found->second;
  }
  const StepRecord before = Step(from, start, {}), after = Step(to, base, *converted);
  EXPECT_NEAR(after.loss, before.loss, 1e-12 * std::abs(before.loss));
  const char* kEmbedding = "embedding.word_embeddings.weight";
  EXPECT_TRUE(AllClose(after.params.at(kEmbedding).contribution,
                       before.params.at(kEmbedding).contribution));
}

TEST(AdapterForms, SubProjectionsComputeWhatTheFusedAdapterDoes) {
  ExpectSameModel(Hybrid(3, false), Hybrid(3, true));
}

// Fused, each module has the ranks of all its sub-projections: 3, 4 and 2 times theirs.
TEST(AdapterForms, FusedComputesWhatTheSubProjectionsDo) {
  Scenario fused = Hybrid(2, false);
  fused.model.common.lora.separate_adapters = true;
  ExpectSameModel(Hybrid(2, true), fused);
}

// Off its block a sub-projection's part of the fused lora_B is zero.
TEST(AdapterForms, FusedFactorsAreBlockDiagonal) {
  const Scenario subs = Hybrid(2, true);
  Scenario fused = Hybrid(2, false);
  fused.model.common.lora.separate_adapters = true;
  Model sub_model(EffectiveModel(subs)), fused_model(EffectiveModel(fused));
  const Weights start = *StartWeights(subs, sub_model.params());
  const Weights joined = *ConvertAdapters(fused.model, start, fused_model.params());
  const std::string at = "decoder.layers.1.self_attention.linear_qkv.";
  const Tensor& fused_B = joined.at(at + "lora_B");
  EXPECT_EQ(fused_B.dims().back().extent(), 6);
  int64_t nonzero = 0;
  for (const double entry : fused_B.values()) nonzero += entry != 0;
  EXPECT_EQ(nonzero * 3, fused_B.count());  // a third of it: the blocks
}

TEST(AdapterForms, RefusesRanksThatDoNotFit) {
  const Scenario from = Hybrid(3, true);
  Model from_model(EffectiveModel(from)), to_model(EffectiveModel(Hybrid(3, false)));
  const Weights start = *StartWeights(from, from_model.params());
  const auto converted = ConvertAdapters(from.model, start, to_model.params());
  EXPECT_EQ(converted.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(converted.status().message()),
              ::testing::HasSubstr("in_proj.lora_A [r=3, h=16] has another rank than its "
                                   "sub-projections: expected 6"));
  EXPECT_EQ(ConvertAdapters(from.model, {}, to_model.params()).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sumonce

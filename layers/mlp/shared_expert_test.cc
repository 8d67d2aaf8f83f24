#include "layers/mlp/shared_expert.h"

#include "gmock/gmock.h"
#include "layers/testing/fused.h"

namespace sumonce::testing {
namespace {

LayerCase RandomExpert(bool overlap) {
  const Dims dims = {Plain(Dim::kSequence, 8), Plain(Dim::kBatch, 2), Plain(Dim::kHidden, 6)};
  LayerCase setup = {.x = Random("x", dims), .up = Random("up", dims)};
  setup.build = [overlap](const Builder& builder) {
    const SharedExpertConfig config = {
        .mlp = {.hidden = 6, .ffn = 12}, .overlap = overlap, .gate = true};
    auto expert = std::make_shared<SharedExpert>(builder.Child("shared_experts"), config);
    return [expert](Tape& tape, Value x) { return expert->Forward(tape, x); };
  };
  setup.config.lora = {.enabled = true, .r = 3, .targets = {"linear_fc1", "linear_fc2"}};
  setup.config.train_base = true;
  return setup;
}

const std::string kExpert = "shared_experts.";

// Partial are the same factors, for another reason: own tokens without overlap, own features with
// it.
TEST(SharedExpert, ShardsReproduceTheUnsharded) {
  const std::vector<std::string> factors = {kExpert + "linear_fc1.lora_A",
                                            kExpert + "linear_fc2.lora_B"};
  std::vector<std::string> with_gate = factors;
  with_gate.push_back(kExpert + "gate_weight");
  for (const bool overlap : {false, true}) {
    ExpectReproducesUnsharded(RandomExpert(overlap), /*sequence_parallel=*/true, with_gate);
    ExpectReproducesUnsharded(RandomExpert(overlap), /*sequence_parallel=*/false,
                              overlap ? factors : std::vector<std::string>());
    const Outcome two = RunLayer(RandomExpert(overlap), {.tp = 2}, true);
    const char* why = overlap ? "tp: P(f)" : "tp: P(s)";
    for (const std::string& factor : factors) EXPECT_EQ(two.StateText(factor), why) << factor;
    EXPECT_EQ(two.StateText(kExpert + "gate_weight"), "tp: P(s)");
  }
}

// The same numbers either way.
TEST(SharedExpert, OverlapChangesNoNumber) {
  const Outcome apart = RunLayer(RandomExpert(false), {.tp = 2}, true);
  const Outcome overlapped = RunLayer(RandomExpert(true), {.tp = 2}, true);
  EXPECT_TRUE(AllClose(overlapped.WholeY(), apart.WholeY()));
  for (const auto& [name, state] : apart.states)
    EXPECT_TRUE(AllClose(overlapped.Whole(name), apart.Whole(name))) << name;
}

}  // namespace
}  // namespace sumonce::testing

// The adapters: proto/lora.proto.
#include <cmath>

#include "sim/reader/reading.h"

namespace sumonce {

void ReadLora(const Block& root, Reading& reading) {
  LayerConfig& common = reading.scenario.model.common;
  common.train_base = true;
  if (!root.Given("lora")) return;
  const Block block = root.Child("lora");
  LoraConfig& lora = common.lora;
  lora.enabled = true;
  lora.r = block.Int("r", lora.r, 1, 4096);
  const double alpha = static_cast<double>(block.Int("lora_alpha", 16, 1));
  const double r = static_cast<double>(lora.r);
  lora.scaling = alpha / (block.Flag("use_rslora") ? std::sqrt(r) : r);
  lora.dropout = block.Number("dropout", lora.dropout, 0, 1);
  if (lora.dropout == 1) {
    block.Add("dropout", "dropout: 1, expected less than 1; take 0.1");
    lora.dropout = 0;
  }
  lora.bias = block.Flag("lora_bias");
  lora.freeze_A = block.Flag("freeze_A");
  lora.freeze_B = block.Flag("freeze_B");
  lora.zero_init_B = block.Choice("init_B", false, {{"RANDOM", false}, {"ZERO", true}});
  common.train_base = block.Flag("train_base");
  lora.separate_adapters = block.Flag("separate_adapters");
  lora.per_sub_projection = block.Flag("per_sub_projection");
  if (lora.separate_adapters && lora.per_sub_projection) {
    block.Add("per_sub_projection",
              "per_sub_projection beside separate_adapters, its block-diagonal form, expected one "
              "of them; take one away");
  }
  lora.targets = block.Texts("target");
  if (lora.targets.empty()) {
    reading.model_known = false;
    block.Missing("lora has no target, expected modules such as target: \"linear_proj\"");
  }
  for (size_t i = 0; i < lora.targets.size(); ++i) {
    reading.globs.push_back({.block = block,
                             .field = "target",
                             .index = static_cast<int>(i),
                             .glob = lora.targets[i],
                             .kind = GlobUse::Kind::kLinear});
  }
}

}  // namespace sumonce

// Configs of public models, by their published figures, as scenarios; and what is refused by name.
#include "sim/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace sumonce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class HfConfig : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "sumonce_hf_config_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }
  HfScenario Read(const std::string& config, HfRun run = {}) {
    Write("config.json", config);
    run.config = folder_;
    return ScenarioOfHfConfig(run);
  }
  Scenario ScenarioOf(const HfScenario& read) {
    for (const Mistake& mistake : read.mistakes) ADD_FAILURE() << Format(mistake);
    ReadResult result = ReadScenarioText(read.text, "config", "config", {});
    for (const Mistake& mistake : result.mistakes) ADD_FAILURE() << Format(mistake);
    return std::move(result.scenario);
  }
  std::vector<std::string> Messages(const HfScenario& read) {
    std::vector<std::string> messages;
    for (const Mistake& mistake : read.mistakes) messages.push_back(mistake.message);
    return messages;
  }

  std::string folder_;
};

// Three GatedDeltaNet layers to one of full attention, with output gate and zero-centred norms.
constexpr char kHybrid[] = R"({
  "model_type": "qwen3_5", "text_config": {
  "hidden_size": 2048, "num_hidden_layers": 8, "full_attention_interval": 4,
  "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 6144,
  "vocab_size": 151936, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
  "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
  "hidden_act": "silu", "rope_theta": 10000000 } })";

TEST_F(HfConfig, AHybridAtItsRealSize) {
  const Scenario scenario = ScenarioOf(Read(kHybrid, {.mesh = {.tp = 4}}));
  ASSERT_EQ(scenario.model.layers.size(), 8u);
  EXPECT_EQ(scenario.model.hidden, 2048);
  EXPECT_EQ(scenario.model.vocab, 152064);  // 297 times 512
  EXPECT_EQ(scenario.model.common.norm, NormKind::kZeroCentered);
  for (size_t i = 0; i < 8; ++i) {
    const DecoderLayerConfig& layer = scenario.model.layers[i];
    ASSERT_TRUE(layer.mlp);
    EXPECT_EQ(layer.mlp->ffn, 6144);
    const auto* attention = std::get_if<SelfAttentionConfig>(&layer.mixer);
    ASSERT_EQ(attention != nullptr, i % 4 == 3) << i;
    if (attention == nullptr) {
      EXPECT_EQ(std::get<GatedDeltaNetConfig>(layer.mixer).num_value_heads, 32);
      continue;
    }
    EXPECT_EQ(attention->num_query_groups, 4);
    EXPECT_EQ(attention->heads_per_group, 4);
    EXPECT_EQ(attention->head_dim, 256);
    EXPECT_TRUE(attention->output_gate);
    EXPECT_TRUE(attention->qk_layernorm);
  }
}

// Llama-3.2-1B's figures: no head_dim missing, groups of four, no norm on queries and keys.
TEST_F(HfConfig, ADenseModel) {
  const HfScenario read = Read(R"({"model_type": "llama", "hidden_size": 2048,
      "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
      "intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": true})");
  const Scenario scenario = ScenarioOf(read);
  ASSERT_EQ(scenario.model.layers.size(), 16u);
  const auto& attention = std::get<SelfAttentionConfig>(scenario.model.layers[0].mixer);
  EXPECT_EQ(attention.head_dim, 64);
  EXPECT_FALSE(attention.qk_layernorm);
  EXPECT_FALSE(attention.output_gate);
  EXPECT_EQ(scenario.model.common.norm, NormKind::kPlain);
  EXPECT_THAT(read.notes, ElementsAre(HasSubstr("tie_word_embeddings")));
}

TEST_F(HfConfig, AnAdapterNamesMegatronsFusedModules) {
  Write("adapter_config.json", R"({"peft_type": "LORA", "r": 16, "lora_alpha": 32,
      "target_modules": ["q_proj", "v_proj", "o_proj", "up_proj", "in_proj_qkv"], "bias": "none"})");
  const Scenario scenario = ScenarioOf(Read(kHybrid, {.adapter = folder_}));
  EXPECT_TRUE(scenario.model.common.lora.enabled);
  EXPECT_EQ(scenario.model.common.lora.r, 16);
  EXPECT_THAT(scenario.model.common.lora.targets,
              ElementsAre("linear_qkv", "linear_proj", "linear_fc1", "in_proj"));
}

TEST_F(HfConfig, WhatIsNotModelledIsRefusedByName) {
  Write("adapter_config.json",
        R"({"use_dora": true, "bias": "all", "target_modules": ["q_proj", "router"]})");
  const HfScenario read = Read(R"({"model_type": "llama", "hidden_size": 64,
      "num_hidden_layers": 2, "hidden_act": "relu",
      "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256, "num_experts": 8,
      "layer_types": ["full_attention", "mamba"]})",
                               {.adapter = folder_});
  EXPECT_THAT(Messages(read),
              ElementsAre(HasSubstr("num_experts: 8: experts are not modelled yet"),
                          HasSubstr("hidden_act: \"relu\", expected silu"),
                          HasSubstr("layer_types: \"mamba\", expected full_attention"),
                          HasSubstr("use_dora: true: DoRA"), HasSubstr("bias: \"all\""),
                          HasSubstr("target_modules: \"router\"")));
}

// What an adapter trains beside its targets, or on some layers alone, is never left out silently.
TEST_F(HfConfig, WhatAnAdapterTrainsBesideIsRefusedByName) {
  for (const char* key :
       {R"("target_parameters": ["mlp.experts.gate_up_proj"])", R"("trainable_token_indices": [3])",
        R"("layer_replication": [[0, 1]])", R"("lora_bias": true)", R"("layers_to_transform": [0])",
        R"("exclude_modules": ["q_proj"])", R"("modules_to_save": ["lm_head"])"}) {
    Write("adapter_config.json",
          std::string(R"({"r": 16, "target_modules": ["q_proj"], )") + key + "}");
    const std::string name = std::string(key).substr(1, std::string(key).find('"', 1) - 1);
    EXPECT_THAT(Messages(Read(kHybrid, {.adapter = folder_})), ElementsAre(HasSubstr(name + ": ")));
  }
  Write("adapter_config.json",
        R"({"r": 16, "target_modules": ["q_proj", "model.layers.3.self_attn.q_proj"]})");
  EXPECT_THAT(
      Messages(Read(kHybrid, {.adapter = folder_})),
      ElementsAre(HasSubstr("\"model.layers.3.self_attn.q_proj\": adapters on some layers")));
  Write("adapter_config.json", R"({"r": 16, "target_modules": ["self_attn.q_proj"],
      "lora_bias": false, "target_parameters": null, "layer_replication": null})");
  EXPECT_THAT(Messages(Read(kHybrid, {.adapter = folder_})), ::testing::IsEmpty());
}

// Its keys look like Llama's, its layers are not: nothing is claimed of what is not known.
TEST_F(HfConfig, AnotherArchitectureIsRefusedByName) {
  for (const char* type : {"cohere", "deepseek_v3", "phi3", "gemma3", "mamba2", ""}) {
    const HfScenario read = Read(R"({"hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256, "model_type": ")" +
                                 std::string(type) + "\"}");
    EXPECT_THAT(Messages(read), ElementsAre(HasSubstr("model_type: \"" + std::string(type) +
                                                      "\", expected one whose layers are known")));
  }
}

TEST_F(HfConfig, BadFilesAreNamed) {
  EXPECT_THAT(Messages(Read("{\"hidden_size\": ")), ElementsAre(HasSubstr("no JSON object")));
  EXPECT_THAT(Messages(Read(R"({"model_type": "qwen3"})")),
              ::testing::Contains(HasSubstr("vocab_size is missing")));
  EXPECT_THAT(
      Messages(Read(
          R"({"model_type": "llama", "hidden_size": 1e99, "num_hidden_layers": -1, "vocab_size": "x"})")),
      ::testing::Contains(HasSubstr("num_hidden_layers: -1, expected an integer from 1")));
  EXPECT_THAT(Messages(ScenarioOfHfConfig({.config = folder_ + "/gone.json"})),
              ElementsAre(HasSubstr("")));
}

}  // namespace
}  // namespace sumonce

#include "sim/scenario_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>

#include "proto/expect.pb.h"
#include "sim/finalize/finalizer.h"
#include "sim/scenario_reader_fixture.h"

namespace sumonce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ScenarioReaderTest, ReadsEveryPart) {
  const ReadResult read = ReadScenario(Write("a.textproto", kValid), "area/a", {});
  ASSERT_TRUE(read.ok()) << Format(read.mistakes[0]);
  const Scenario& scenario = read.scenario;
  EXPECT_EQ(scenario.name, "area/a");
  EXPECT_EQ(scenario.mesh.tp, 2);
  EXPECT_EQ(scenario.mesh.dp, 2);
  EXPECT_TRUE(scenario.sequence_parallel);
  EXPECT_EQ(scenario.model.hidden, 8);
  ASSERT_EQ(scenario.model.layers.size(), 2u);
  const auto& gdn = std::get<GatedDeltaNetConfig>(scenario.model.layers[0].mixer);
  EXPECT_EQ(gdn.hidden, 8);
  EXPECT_EQ(gdn.mode, GdnMode::kGatherRegion);
  EXPECT_EQ(scenario.model.layers[0].mlp->ffn, 8);
  const auto& attention = std::get<SelfAttentionConfig>(scenario.model.layers[1].mixer);
  EXPECT_EQ(attention.heads_per_group, 2);
  EXPECT_EQ(attention.rope.rotary_dim, 4) << "absent: head_dim";
  EXPECT_FALSE(scenario.model.layers[1].mlp.has_value());
  EXPECT_DOUBLE_EQ(scenario.model.common.lora.scaling, 0.5);
  EXPECT_FALSE(scenario.model.common.lora.zero_init_B) << "absent: RANDOM";
  EXPECT_FALSE(scenario.model.common.train_base);
  EXPECT_TRUE(scenario.qk_layernorm) << "absent: on if a layer has one";
  EXPECT_EQ(scenario.finalizer, "megatron_core_0_16");
  ASSERT_EQ(scenario.defects.size(), 4u);
  EXPECT_EQ(scenario.defects[0].location.line, 12);
  const auto& mark = std::get<MarkEdit>(scenario.defects[0].kind);
  EXPECT_FALSE(mark.set);
  EXPECT_THAT(mark.ranks, ElementsAre(0, 3));
  ASSERT_EQ(scenario.expectations.size(), 1u);
  EXPECT_EQ(scenario.expectations[0].mechanism, Mechanism::kMissingSum);
  EXPECT_EQ(scenario.expectations[0].axis, Axis::kTp);
  EXPECT_EQ(scenario.expectations[0].step, 1);
  EXPECT_TRUE(std::get<MarkEdit>(scenario.cures.at(0).kind).set);
}

TEST_F(ScenarioReaderTest, WithoutLoraTheBaseIsTrained) {
  const ReadResult read =
      ReadScenario(Write("a.textproto", "model { layer { mlp {} } }"), "area/a", {});
  ASSERT_TRUE(read.ok()) << Format(read.mistakes[0]);
  EXPECT_TRUE(read.scenario.model.common.train_base);
  EXPECT_FALSE(read.scenario.model.common.lora.enabled);
  EXPECT_FALSE(read.scenario.qk_layernorm);
}

struct Broken {
  const char* from;
  const char* to;
  const char* mistake;  // the only one
};

// For the names of ctest's entries: the change, in letters.
void PrintTo(const Broken& broken, std::ostream* out) {
  for (const char* c = broken.to; *c != 0; ++c) *out << (std::isalnum(*c) ? *c : '_');
}

class BrokenFile : public ScenarioReaderTest, public ::testing::WithParamInterface<Broken> {};

TEST_P(BrokenFile, HasExactlyOneMistake) {
  const Broken& broken = GetParam();
  EXPECT_THAT(MistakesOf(Changed(broken.from, broken.to)), ElementsAre(broken.mistake));
}

std::vector<Broken> BrokenNames() {
  return {
      Broken{"hidden: 8", "hiden: 8",
             ":5:3: error: unknown field \"hiden\" of Model, expected vocab, hidden, layer, norm, "
             "norm_eps, init_std, head, weights_file, add_bias_linear, max_position_embeddings, "
             "embedding_output or row_bias; did you mean \"hidden\"?"},
      Broken{"hidden: 8", "hidden: 8 max_position_embeddings: 3",
             ":5:13: error: max_position_embeddings: 3, expected at least one row for each of the "
             "data's 8 tokens; take 8"},
      Broken{"{ self_attention", "{ self_atention",
             ":7:11: error: unknown field \"self_atention\" of Layer, expected self_attention, "
             "linear_attention, multi_latent_attention, mlp, input_layernorm, "
             "pre_mlp_layernorm or shared_expert; did you mean \"self_attention\"?"},
      Broken{"TOGGLE_AND_RESTORE", "TOGGLE_RESTORE",
             ":13:61: error: marks: unknown value TOGGLE_RESTORE, expected KEEP, "
             "TOGGLE_AND_RESTORE or LEAVE_OFF; did you mean \"TOGGLE_AND_RESTORE\"?"},
      Broken{"mark: SEQUENCE_PARALLEL rank", "mark: SEQUENCE_PARALEL rank",
             ":12:59: error: mark: unknown value SEQUENCE_PARALEL, expected SEQUENCE_PARALLEL, "
             "AVERAGE_GRADIENTS_ACROSS_TP_DOMAIN, TENSOR_MODEL_PARALLEL or ALLREDUCE; did you mean "
             "\"SEQUENCE_PARALLEL\"?"},
      Broken{
          "sequence_parallel_sum", "sequence_paralel_sum",
          ":15:22: error: rule: unknown \"sequence_paralel_sum\" of megatron_core_0_16, expected "
          "data_parallel_mean, data_parallel_sum, expert_data_parallel_mean, "
          "expert_data_parallel_sum, average_over_tp, sequence_parallel_sum, "
          "qk_layernorm_sum or times_inverse_num_tokens; did you mean "
          "\"sequence_parallel_sum\"?"},
      Broken{"steps: 2", "steps: 2 finalizer: \"megatron_core_0_61\"",
             ":11:10: error: finalizer: unknown \"megatron_core_0_61\", expected "
             "megatron_core_0_12, megatron_core_0_13, megatron_core_0_14, megatron_core_0_15, "
             "megatron_core_0_16, megatron_core_0_17, megatron_core_0_18 or megatron_core_0_19; "
             "did you mean \"megatron_core_0_16\"?"},
      Broken{"*.linear_proj.lora_B\" mark: SEQUENCE_PARALLEL rank",
             "*.linear_prj.lora_B\" mark: SEQUENCE_PARALLEL rank",
             ":12:23: error: param: \"*.linear_prj.lora_B\" matches no trainable parameter; did "
             "you mean \"*linear_proj.lora_B\"?"},
      Broken{"\"*.linear_proj.lora_B\" mechanism", "\"*.linear_fc1.weight\" mechanism",
             ":16:10: error: param: \"*.linear_fc1.weight\" matches no trainable parameter, only "
             "frozen ones; train them with lora { train_base: true }"},
      Broken{
          "*.linear_fc2/ReduceScatter#0", "*.linear_fc2/ReduceScater#0",
          ":14:23: error: operation: \"*.linear_fc2/ReduceScater#0\" matches no communication of "
          "this model on this mesh; did you mean \"*linear_fc2/ReduceScatter#0\"?"},
      Broken{"*.0.self_attention", "*.1.self_attention",
             ":13:25: error: module: \"*.1.self_attention\" matches no module with mode: "
             "GATHER_REGION; did you mean \"*0.self_attention\"?"},
      Broken{"target: \"in_proj\"", "target: \"in_prj\"",
             ":9:49: error: target: \"in_prj\" matches no linear module of the model; did you mean "
             "\"*in_proj\"?"},
      Broken{"ffn: 8", "ffn: 9",
             ":6:94: error: ffn: 9 cannot be cut by tp=2, expected a multiple of 2; take 8 or 10, "
             "or for the whole file tp 1"},
      Broken{"sequence: 8", "sequence: 7",
             ":10:8: error: sequence: 7 cannot be cut by tp=2, expected a multiple of 2; take 6 or "
             "8, or for the whole file tp 1, or sequence_parallel: false"}};
}
INSTANTIATE_TEST_SUITE_P(Names, BrokenFile, ::testing::ValuesIn(BrokenNames()));

std::vector<Broken> BrokenValues() {
  return {
      Broken{"num_heads: 4", "num_heads: 5",
             ":7:28: error: num_heads: 5, expected a multiple of num_query_groups=2; take 4 or 6"},
      Broken{"head_dim: 4", "head_dim: 4 rotary_dim: 3",
             ":7:73: error: rotary_dim: 3, expected an even number: entries are rotated in pairs; "
             "take 2"},
      Broken{"num_value_heads: 4", "num_value_heads: 3",
             ":6:47: error: num_value_heads: 3, expected a multiple of num_key_heads=2; take 2 or "
             "4"},
      Broken{"rank: [0, 3]", "rank: [0, 4]",
             ":12:77: error: rank: 4, expected 0 to 3: the mesh has 4 ranks (tp=2, dp=2)"},
      Broken{"dp: 2", "dp: 1024",
             ":2:8: error: tp=2 times dp=1024 is 2048 ranks, expected at most 1024; the verdict is "
             "the same at smaller sizes: take tp and dp of 2 to 8"},
      Broken{"dp: 2", "dp: 2 cp: 2",
             ":2:20: error: cp=2, expected 1: this version simulates tp and dp; take it out"},
      Broken{"tp: 2", "tp: 0", ":2:8: error: tp: 0, expected at least 1"},
      Broken{"1/tp", "1/tq",
             ":16:72: error: coefficient: \"1/tq\" cannot be read from \"tq\" on, expected a "
             "product "
             "such as \"tp\", \"1/tp\", \"2*tp^2/dp\" or \"0\", \"none: per rank\" or \"none: a "
             "mixture\""},
      Broken{
          "MISSING_SUM", "MISING_SUM",
          ":16:51: error: mechanism: unknown value MISING_SUM, expected MISSING_SUM, DOUBLE_SUM, "
          "AVERAGED, UNSUMMED_SHARE, MIXED_SHARDS, WRONG_SCALE, MIXED_USE, WRONG_GROUP, "
          "LOST_CONTRIBUTION, STALE, UPSTREAM, LOCAL_GRADIENT, WRONG_SHARD, REPLICA_DRIFT, "
          "NORM_MISCOUNT, EXPORT_DIFFERS, COLLECTIVE_MISMATCH, DEADLOCK, RANK_LOST, "
          "NONDETERMINISTIC or NOT_FINITE; did you mean \"MISSING_SUM\"?"},
      Broken{"step: 1", "step: 3", ":16:92: error: step: 3, expected at most 2"},
      Broken{"mechanism: MISSING_SUM axis: TP coefficient: \"1/tp\"", "",
             ":16:1: error: expect has no mechanism, expected one: mechanism: MISSING_SUM"},
      Broken{"steps: 2", "steps: 2 defect { lose_microbatch { param: \"*\" index: 2 } }",
             ":11:48: error: index: 2, expected 0 to 1: there are 2 microbatches; see "
             "data.microbatches"},
      Broken{
          "steps: 2",
          "steps: 2 defect { wrong_group { rule: \"data_parallel_sum\" group: "
          "\"pp\" } }",
          ":11:59: error: group: unknown \"pp\", expected tp, dp, tp_dp or kv_copies; did you mean "
          "\"tp\"?"}};
}
INSTANTIATE_TEST_SUITE_P(Values, BrokenFile, ::testing::ValuesIn(BrokenValues()));

std::vector<Broken> BrokenStructure() {
  return {
      Broken{
          "steps: 2", "steps: 2 cure { }",
          ":11:10: error: cure says nothing, expected what to change: cure { set_mark { ... } }"},
      Broken{"steps: 2", "steps: 2 cure { remove_defect: true }",
             ":11:17: error: remove_defect beside another cure, expected it alone; take one away"},
      Broken{"from: 0.75", "from: 1.75", ":10:46: error: from: 1.75, expected at most 1"},
      Broken{"from: 0.75", "from: 0.99",
             ":10:36: error: loss_on covers none of the 8 tokens, expected one at least; widen it"},
      Broken{"steps: 2", "steps: 2 steps: 3",
             ":11:10: error: steps is given twice, expected once; take one away"},
      Broken{"mlp { ffn: 8 }", "self_attention { } mlp { ffn: 8 }",
             ":6:88: error: self_attention beside linear_attention, expected one of them; take one "
             "away"},
      Broken{"steps: 2", "steps: many", ":11:8: error: steps: many, expected an integer"},
      Broken{"steps: 2", "steps: 2 export_adapter: perhaps",
             ":11:26: error: export_adapter: perhaps, expected true or false"},
      Broken{"data {", "optimizer { lr: nan } data {",
             ":10:13: error: lr: nan, expected a finite "
             "number"},
      Broken{"rank: [0, 3] } }", "rank: [0, 3] }",
             ":12:8: error: this block has no end, expected \"}\"; close it"},
      Broken{"steps: 2", "steps: 2 }",
             ":11:10: error: \"}\" closes nothing, expected a field; take it out"}};
}
INSTANTIATE_TEST_SUITE_P(Structure, BrokenFile, ::testing::ValuesIn(BrokenStructure()));

// Mistakes of syntax, names, sizes and files in one file: none hides another.
TEST_F(ScenarioReaderTest, FindsAllMistakesOfAFileAtOnce) {
  const std::string text =
      R"(mesh { tp: 5 cpp: 2 }
model {
)"
      "\tvocab: 25x\n"
      R"(  layer { self_attention { num_heads: many } mlp { activation: RELU } }
}
finalizer: "megatron"
steps: 1 steps: 2
defect { scale_gradient { param: "*.nothing" factor: 2 rank: 9 } }
data { loss_on { to: inf } from_file: "none.safetensors" }
)";
  EXPECT_THAT(
      MistakesOf(text),
      ElementsAre(HasSubstr(":1:14: error: unknown field \"cpp\""),
                  HasSubstr(":2:1: error: vocab: 24 (the default) cannot be cut by tp=5"),
                  HasSubstr(":3:11: error: vocab: "), HasSubstr(":4:11: error: num_query_groups: "),
                  HasSubstr(":4:39: error: num_heads: many, expected an integer"),
                  HasSubstr(":4:46: error: ffn: 24 (the default) cannot be cut by tp=5"),
                  HasSubstr(":4:64: error: activation: unknown value RELU"),
                  HasSubstr(":6:1: error: finalizer: unknown \"megatron\""),
                  HasSubstr(":7:10: error: steps is given twice"),
                  HasSubstr(":8:27: error: param: \"*.nothing\" matches no trainable parameter"),
                  HasSubstr(":8:56: error: rank: 9, expected 0 to 4: the mesh has 5 ranks"),
                  HasSubstr(":9:18: error: to: inf, expected a finite number"),
                  HasSubstr(":9:28: error: from_file: brings its own loss mask beside loss_on"),
                  HasSubstr("none.safetensors: no such file, expected a safetensors file")));
}

// A defect below the roundings would be RIGHT in numbers and unknown to the proof.
TEST_F(ScenarioReaderTest, AFactorThatRoundingsHideIsRefused) {
  EXPECT_THAT(MistakesOf(std::string(kValid) +
                         "defect { scale_gradient { param: \"*\" factor: 1.0000000000001 } }\n"),
              ElementsAre(HasSubstr("error: factor: it differs from 1 by 9.99201e-14, which")));
}

TEST_F(ScenarioReaderTest, ExpectationsThatContradictAreRefused) {
  EXPECT_THAT(
      MistakesOf(std::string(kValid) + "expect { param: \"*.lora_B\" mechanism: DOUBLE_SUM }\n"
                                       "expect { param: \"*.lora_B\" mechanism: REPLICA_DRIFT }\n"
                                       "expect { param: \"*.lora_B\" outcome: RIGHT }\n"),
      ElementsAre(HasSubstr(":20:1: error: expect contradicts that of line 18 on the same")));
}

TEST_F(ScenarioReaderTest, KnowsEveryMechanismOfTheSchema) {
  const auto* type = proto::Mechanism_descriptor();
  int of_a_parameter = 0;
  for (int i = 1; i < type->value_count(); ++i) {
    const std::string& name = type->value(i)->name();
    const ReadResult read =
        ReadScenario(Write("a.textproto", Changed("MISSING_SUM", name)), "area/a", {});
    EXPECT_EQ(Name(read.scenario.expectations[0].mechanism), name);
    if (read.ok()) {
      ++of_a_parameter;
      continue;
    }
    ASSERT_EQ(read.mistakes.size(), 1u) << name;
    EXPECT_THAT(Format(read.mistakes[0]), HasSubstr("param beside mechanism: " + name +
                                                    ", expected none: that is of the run itself"));
  }
  EXPECT_EQ(of_a_parameter, type->value_count() - 1 - 5);
  EXPECT_EQ(type->value_count() - 1, static_cast<int>(Mechanism::kNotFinite));
}

TEST_F(ScenarioReaderTest, OverridesReplaceTheFilesAxesAndAreNamed) {
  EXPECT_THAT(
      MistakesOf(kValid, {.axes = {{Axis::kTp, 6}}, .seed = {}}),
      ElementsAre(HasSubstr(":6:30: error: num_key_heads: 2 cannot be cut by "
                            "tp=6 (from --tp), expected a multiple of 6; take 6, or for the "
                            "whole file tp 1 or 2"),
                  HasSubstr(":6:94: error: ffn: 8 cannot be cut by tp=6 (from --tp)"),
                  // Two groups serve six ranks, three each.
                  HasSubstr(":7:28: error: num_heads: 4 cannot be cut by tp=6 (from --tp)"),
                  HasSubstr(":7:61: error: rows of linear_qkv: 32 cannot be cut"),
                  HasSubstr(":10:8: error: sequence: 8 cannot be cut")));
  EXPECT_THAT(MistakesOf(kValid, {.axes = {{Axis::kTp, 1}, {Axis::kDp, 8}}, .seed = {}}),
              ElementsAre(HasSubstr(":14:23: error: operation:")))
      << "tp 1 has other communications";
  const ReadResult read = ReadScenario(Write("a.textproto", kValid), "a", {.axes = {}, .seed = 99});
  EXPECT_EQ(read.scenario.seed, 99u);
}

}  // namespace
}  // namespace sumonce

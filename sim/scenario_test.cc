#include "sim/scenario.h"

#include <gtest/gtest.h>

namespace sumonce {
namespace {

std::string Line(EditKind kind) { return Describe({.kind = std::move(kind), .location = {}}); }

TEST(Describe, SaysEachEditInOneLine) {
  EXPECT_EQ(Line(MarkEdit{.param = "*.lora_B"}), "set sequence_parallel=true on *.lora_B");
  EXPECT_EQ(
      Line(MarkEdit{.param = "*.lora_B",
                    .mark = Mark::kAverageGradientsAcrossTpDomain,
                    .set = false,
                    .when = When::kAfterBackward,
                    .ranks = {0, 3}}),
      "set average_gradients_across_tp_domain=false on *.lora_B after backward on ranks 0, 3");
  EXPECT_EQ(Line(RuleEdit{.rule = "sequence_parallel_sum"}), "drop the rule sequence_parallel_sum");
  EXPECT_EQ(Line(RuleEdit{.how = RuleEdit::How::kOtherGroup,
                          .rule = "data_parallel_sum",
                          .param = "*.weight",
                          .group = "tp"}),
            "let the rule data_parallel_sum for *.weight reduce over tp");
  EXPECT_EQ(Line(AddRuleEdit{.param = "*.out_norm.weight"}),
            "add a rule: sum *.out_norm.weight over tp");
  EXPECT_EQ(Line(CollectiveEdit{.operation = "*/Copy#0",
                                .direction = Direction::kBackward,
                                .map = Map::kIdentity,
                                .ranks = {1}}),
            "let */Copy#0 do identity in backward on rank 1");
  EXPECT_EQ(Line(MicrobatchEdit{.param = "*", .index = 1}), "lose microbatch 1's term of *");
  EXPECT_EQ(Line(MicrobatchEdit{.param = "*", .index = 0, .repeat = true}),
            "count microbatch 0's term of * twice");
  EXPECT_EQ(Line(ScaleEdit{.param = "*", .factor = 0.5}),
            "multiply the local gradient of * by 0.5");
  EXPECT_EQ(
      Line(RegionMarksEdit{.module = "*.0.self_attention", .marks = RegionMarks::kKeep}),
      "keep the marks inside the gather region of *.0.self_attention, toggle its modules only");
}

}  // namespace
}  // namespace sumonce

// What process 0 asks of the others arrives as it was meant: every edit that ships, and every edit
// that a diagnosis proposes, survives the way between processes; and the messages say what the
// scenario file said.
#include "sim/remote/job.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <fstream>
#include <set>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"
#include "proto/scenario.pb.h"
#include "sim/simulator.h"
#include "tests/system/shipped.h"
#include "verify/runner.h"

namespace sumonce {
namespace {

SimulationJob RoundTrip(const SimulationJob& job) {
  const absl::StatusOr<std::string> bytes = EncodeJob(job);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  absl::StatusOr<SimulationJob> back = DecodeJob(*bytes);
  EXPECT_TRUE(back.ok()) << back.status();
  return *std::move(back);
}

proto::JobEdit MessageOf(const Edit& edit) {
  proto::SimulationJob job;
  EXPECT_TRUE(
      job.ParseFromString(*EncodeJob({.edits = {edit}, .start_digest = "", .exit_status = {}})));
  EXPECT_EQ(job.edit_size(), 1);
  return job.edit(0);
}

// Field by field, told by the kind's number and its messages.
void ExpectSame(const Edit& edit, const std::string& where) {
  const SimulationJob back = RoundTrip({.edits = {edit}, .start_digest = "", .exit_status = {}});
  ASSERT_EQ(back.edits.size(), 1u) << where;
  EXPECT_EQ(back.edits[0].kind.index(), edit.kind.index()) << where;
  EXPECT_EQ(Describe(back.edits[0]), Describe(edit)) << where;
  EXPECT_EQ(MessageOf(back.edits[0]).SerializeAsString(), MessageOf(edit).SerializeAsString())
      << where;
}

proto::Scenario Parsed(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  proto::Scenario scenario;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text.str(), &scenario)) << path;
  return scenario;
}

// A rule's edit without a parameter means all: the reader says "*".
void AllIsAGlob(proto::Defect& defect) {
  using RuleChange = proto::RuleChange;
  for (RuleChange* change : {defect.has_drop_rule() ? defect.mutable_drop_rule() : nullptr,
                             defect.has_repeat_rule() ? defect.mutable_repeat_rule() : nullptr,
                             defect.has_average_rule() ? defect.mutable_average_rule() : nullptr}) {
    if (change != nullptr && change->param().empty()) change->set_param("*");
  }
  if (defect.has_wrong_group() && defect.wrong_group().param().empty())
    defect.mutable_wrong_group()->set_param("*");
}

using google::protobuf::util::MessageDifferencer;

TEST(Job, SaysOfEveryShippedDefectWhatItsFileSays) {
  std::set<int> kinds;
  for (const ScenarioFile& file : testing::ShippedFiles()) {
    const Scenario scenario = testing::Shipped(file.name);
    const proto::Scenario written = Parsed(file.path);
    ASSERT_EQ(written.defect_size(), static_cast<int>(scenario.defects.size())) << file.name;
    for (int i = 0; i < written.defect_size(); ++i) {
      proto::Defect expected = written.defect(i);
      AllIsAGlob(expected);
      kinds.insert(expected.kind_case());
      ExpectSame(scenario.defects[i], file.name);
      EXPECT_TRUE(MessageDifferencer::Equals(MessageOf(scenario.defects[i]).defect(), expected))
          << file.name << "\n"
          << expected.DebugString();
    }
    for (const Edit& cure : scenario.cures) ExpectSame(cure, file.name);
  }
  EXPECT_GT(kinds.size(), 9u) << "the shipped scenarios no longer show most kinds";
}

// All kinds, with every field away from its default.
TEST(Job, CarriesEveryKindOfEdit) {
  using How = RuleEdit::How;
  std::vector<EditKind> kinds = {
      MarkEdit{.param = "a",
               .mark = Mark::kAverageGradientsAcrossTpDomain,
               .set = false,
               .when = When::kAfterBackward,
               .ranks = {1, 3}},
      MarkEdit{.param = "b",
               .mark = Mark::kSequenceParallel,
               .set = true,
               .when = When::kDuringCall,
               .ranks = {}},
      AddRuleEdit{.param = "c", .map = Map::kAvg, .group = "dp"},
      CollectiveEdit{
          .operation = "d", .direction = Direction::kBackward, .map = Map::kPad, .ranks = {2}},
      MicrobatchEdit{.param = "e", .index = 3, .repeat = true},
      MicrobatchEdit{.param = "e", .index = 1, .repeat = false},
      StaleEdit{.param = "f", .ranks = {5}},
      PermuteEdit{.param = "g", .ranks = {6}},
      ScaleEdit{.param = "h", .factor = 0.1, .ranks = {7}},
      RegionMarksEdit{.module = "i", .marks = RegionMarks::kLeaveOff}};
  for (const How how : {How::kDrop, How::kRepeat, How::kAverage})
    kinds.push_back(RuleEdit{.how = how, .rule = "r", .param = "p", .group = ""});
  kinds.push_back(RuleEdit{.how = How::kOtherGroup, .rule = "r", .param = "p", .group = "tp_dp"});
  for (int fault = 0; fault <= static_cast<int>(FaultKind::kUnordered); ++fault) {
    const auto kind = static_cast<FaultKind>(fault);
    const bool swaps = kind == FaultKind::kSwappedBuffer;
    kinds.push_back(CommunicationEdit{.fault = {.kind = kind,
                                                .operation = "j",
                                                .occurrence = 4,
                                                .element = 11,
                                                .bit = 12,
                                                .other = 13,
                                                .count = swaps ? 14 : 1},
                                      .ranks = {8}});
  }
  SimulationJob job{.scenario = 5,
                    .world_size = 8,
                    .edits = {},
                    .native_sums = true,
                    .start_digest = "abc",
                    .exit_status = 3};
  for (const EditKind& kind : kinds) {
    ExpectSame({.kind = kind, .location = {}}, std::to_string(kind.index()));
    job.edits.push_back({.kind = kind, .location = {}});
  }
  const SimulationJob back = RoundTrip(job);
  EXPECT_EQ(back.scenario, 5);
  EXPECT_EQ(back.world_size, 8);
  EXPECT_TRUE(back.native_sums);
  EXPECT_EQ(back.start_digest, "abc");
  EXPECT_EQ(back.exit_status, 3);
  ASSERT_EQ(back.edits.size(), job.edits.size());
  for (size_t i = 0; i < kinds.size(); ++i)  // in their order: rules act one after the other
    EXPECT_EQ(Describe(back.edits[i]), Describe(job.edits[i])) << i;
  const auto* scale = std::get_if<ScaleEdit>(&back.edits[8].kind);
  ASSERT_NE(scale, nullptr);
  EXPECT_EQ(scale->factor, 0.1);
  EXPECT_EQ(scale->ranks, std::vector<int>{7});
}

TEST(Job, CarriesWhatDiagnosesPropose) {
  int proposed = 0;
  for (const char* name : {"lora/row_flag_missing", "gdn/gamma_flagged", "dp/sum_dropped",
                           "upstream/gather_split_backward", "lora/averaged_partial"}) {
    const Scenario scenario = testing::Shipped(name);
    const ScenarioResult result = RunScenario(scenario, RunnerOptions())[0];
    for (const Finding& finding : result.findings) {
      if (!finding.cure) continue;
      for (const Edit& edit : finding.cure->edits) ExpectSame(edit, name);
      ++proposed;
    }
  }
  EXPECT_GT(proposed, 3);
}

TEST(Job, WhatIsNoJobIsRefused) {
  EXPECT_EQ(DecodeJob("\xff\xff").status().code(), absl::StatusCode::kInternal);
  proto::SimulationJob empty_edit;
  empty_edit.add_edit();
  EXPECT_EQ(DecodeJob(empty_edit.SerializeAsString()).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(EncodeJob({.edits = {{.kind = CollectiveEdit{.operation = "x", .map = Map::kStop},
                                  .location = {}}},
                       .start_digest = "",
                       .exit_status = {}})
                .status()
                .code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace sumonce

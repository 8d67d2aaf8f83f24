// Every recorded step gives the verdicts that its folder says (spec of the format: docs/TRACE.md).
#include "trace/prove_traces.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace sumonce::trace {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;
using nlohmann::json;

const std::string& TraceDir() {
  static const auto& dir = *new std::string(absl::StrCat(SUMONCE_TEST_DATA, "/traces"));
  return dir;
}

std::vector<std::string> Cases() {
  std::vector<std::string> cases;
  for (const auto& entry : fs::directory_iterator(TraceDir())) {
    if (entry.is_directory()) cases.push_back(entry.path().filename());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

json Expected(const std::string& name) {
  std::ifstream file(absl::StrCat(TraceDir(), "/", name, "/expected.json"));
  return json::parse(file);
}

// "S(0)", "E, times tp": the words of the proof for the state of an expected.json.
std::string StateText(const json& state) {
  std::string text = state["layout"];
  if (text == "S") text = absl::StrCat("S(", int{state["dim"]}, ")");
  const int power = state["coefficient"]["power_of_tp"];
  if (power == 1) text += ", times tp";
  if (power == -1) text += ", times 1/tp";
  if (power == 2) text += ", times tp^2";
  return text;
}

class RecordedStep : public testing::TestWithParam<std::string> {};

TEST_P(RecordedStep, HasTheVerdictsOfItsFolder) {
  const auto set = ReadTraces(absl::StrCat(TraceDir(), "/", GetParam()));
  ASSERT_TRUE(set.ok()) << set.status();
  const TraceProof proof = ProveTraces(*set);
  EXPECT_EQ(proof.refused, "");
  const json expected = Expected(GetParam());
  EXPECT_EQ(proof.proofs.size(), expected["parameters"].size());
  for (const auto& [param, want] : expected["parameters"].items()) {
    SCOPED_TRACE(param);
    const auto found = proof.proofs.find(param);
    ASSERT_NE(found, proof.proofs.end());
    const Proof& got = found->second;
    const std::string word(got.outcome == Outcome::kWrong ? Name(got.mechanism)
                                                          : Name(got.outcome));
    EXPECT_EQ(word, want["verdict"]) << got.operation << ": " << got.reason;
    if (want["verdict"] == "NO_STATEMENT" || word == "NO_STATEMENT") continue;
    EXPECT_EQ(got.before, StateText(want["before_finalizer"]));
    EXPECT_EQ(got.after, StateText(want["after_finalizer"]));
  }
  for (const auto& refusal : expected["refusals"]) {
    const std::string text = refusal;
    bool named = false;
    for (const auto& [op, told] : proof.refusals) named |= text.starts_with(told.name);
    EXPECT_TRUE(named) << text;
  }
  if (expected["refusals"].empty()) {
    for (const auto& [param, got] : proof.proofs) EXPECT_EQ(got.reason, "") << param;
  }
}

std::string CureOf(const std::string& name, const std::string& param) {
  const auto set = ReadTraces(absl::StrCat(TraceDir(), "/", name));
  const TraceProof proof = ProveTraces(*set);
  const auto cure = proof.cures.find(param);
  return cure == proof.cures.end() ? "" : cure->second.text;
}

// The founding cases, in the user's own program.
TEST(Cure, NamesTheMark) {
  const std::string lora = "decoder.layers.1.self_attention.linear_proj.lora_B.default.weight";
  EXPECT_EQ(CureOf("lora-replica-bug", lora), "set sequence_parallel=true on " + lora);
  const std::string gamma = "decoder.layers.0.self_attention.in_proj.layer_norm_weight";
  EXPECT_EQ(CureOf("gdn-gamma-tp2-bug", gamma), "set sequence_parallel=false on " + gamma);
  EXPECT_EQ(CureOf("lora-replica-fixed", lora), "");
}

// A job of DTensors reads no marks: its cures are placements, and where they are to be written.
TEST(Cure, NamesThePlacementOfADTensorsJob) {
  EXPECT_EQ(CureOf("torch-tp-unreduced", "blocks.0.lora_A.weight"),
            "declare the gradient of blocks.0.lora_A.weight a term of each rank where blocks.0 "
            "takes it local: to_local(grad_placements=[Partial()]), and redistribute it to "
            "(Replicate(),)");
  EXPECT_EQ(CureOf("torch-tp-left-partial", "blocks.1.norm.bias"),
            "redistribute the gradient of blocks.1.norm.bias, which is left (Partial(sum),): "
            "grad.redistribute(placements=(Replicate(),)) before the optimizer");
  EXPECT_EQ(CureOf("torch-tp-plain-norm", "blocks.0.norm.weight"),
            "make blocks.0.norm.weight a DTensor, Replicate(), whose gradient is reduced: give "
            "blocks.0.norm a style in the plan of parallelize_module, such as SequenceParallel(), "
            "or dist.all_reduce its gradient");
  EXPECT_EQ(CureOf("torch-tp-summed-twice", "head.weight"),
            "declare the gradient of head.weight complete where the model takes it local: "
            "to_local(grad_placements=[Replicate()])");
  EXPECT_EQ(CureOf("torch-tp-unreduced", "blocks.0.norm.weight"), "");
}

// No mark serves two uses by rows: what is missing is a sum in the backward pass, in each layer.
TEST(Cure, NamesTheSumThatAMixedUseByRowsLacks) {
  const auto set = ReadTraces(absl::StrCat(TraceDir(), "/mla-te-sp-off-bug"));
  const TraceProof proof = ProveTraces(*set);
  EXPECT_EQ(proof.cures.size(), 14u);
  for (const auto& [param, cure] : proof.cures) {
    EXPECT_THAT(cure.text, HasSubstr("aten.cat [decoder.layers.1.self_attention], @"));
    EXPECT_THAT(cure.text, HasSubstr("aten.cat [decoder.layers.0.self_attention]"));
    EXPECT_TRUE(cure.right_in_proof);
  }
}

TEST(Refusal, ListsWhoInheritsIt) {
  const std::string dir = absl::StrCat(TraceDir(), "/mla-te-sp-off-bug");
  const ScenarioResult result = JudgeTraces(*ReadTraces(dir), dir);
  ASSERT_EQ(result.findings.size(), 14u);
  EXPECT_EQ(result.findings[0].verdict.affected.size(), 13u);
  EXPECT_EQ(result.findings[0].verdict.mechanism, Mechanism::kMixedUse);
}

TEST(Explanation, FollowsTheGradientsPath) {
  const auto set = ReadTraces(absl::StrCat(TraceDir(), "/gdn-gamma-tp2-bug"));
  const auto lines =
      ExplainTraces(*set, "decoder.layers.0.self_attention.in_proj.layer_norm_weight");
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_EQ(lines->front(), "wanted E; before the finalizer E, after E, times tp");
  EXPECT_GT(lines->size(), 3u);
  EXPECT_FALSE(ExplainTraces(*set, "decoder.layers.0").ok());
}

INSTANTIATE_TEST_SUITE_P(Traces, RecordedStep, testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (!isalnum(c)) c = '_';
  }
  return name;
});

}  // namespace
}  // namespace sumonce::trace

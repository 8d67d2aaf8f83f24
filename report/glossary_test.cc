#include "report/glossary.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/defect.pb.h"
#include "report/describe.h"
#include "sim/finalize/finalizer.h"
#include "sim/scenario.h"
#include "sim/scenario_reader.h"
#include "spmd/operation.h"
#include "verify/prove.h"

namespace sumonce {
namespace {

using ::testing::HasSubstr;

std::set<std::string> Words(const std::string& kind) {
  std::set<std::string> words;
  for (const GlossaryEntry& entry : Glossary()) {
    if (entry.kind == kind) words.insert(entry.word);
  }
  return words;
}

GlossaryEntry EntryOf(const std::string& word) {
  for (const GlossaryEntry& entry : Glossary()) {
    if (entry.word == word) return entry;
  }
  ADD_FAILURE() << "no entry " << word;
  return {};
}

TEST(Glossary, HasEveryMechanismPresetRuleAndOperation) {
  const std::set<std::string> mechanisms = Words("mechanism");
  for (int i = 1; i <= static_cast<int>(Mechanism::kNotFinite); ++i)
    EXPECT_THAT(mechanisms, ::testing::Contains(std::string(Name(static_cast<Mechanism>(i)))));
  const std::set<std::string> presets = Words("preset"), rules = Words("rule");
  for (const std::string& preset : Finalizers().names()) {
    EXPECT_THAT(presets, ::testing::Contains(preset));
    const FinalizePreset found = *Finalizers().Find(preset);
    for (const FinalizeStep& step : found.steps) {
      for (const FinalizeRule& rule : step.rules)
        EXPECT_THAT(rules, ::testing::Contains(rule.name));
    }
  }
  for (const GlossaryEntry& entry : GlossaryOfOperations()) {
    EXPECT_NE(entry.formula, "") << entry.word << ": give it one in glossary_of_operations.cc";
    EXPECT_FALSE(entry.details.empty()) << entry.word;
  }
  EXPECT_EQ(GlossaryOfOperations().size(), Operations().all().size());
}

TEST(Glossary, HasEveryDefectAndFault) {
  const auto* defect = proto::Defect::descriptor();
  EXPECT_EQ(Words("defect").size(), static_cast<size_t>(defect->field_count()));
  for (int i = 0; i < defect->field_count(); ++i)
    EXPECT_THAT(Words("defect"), ::testing::Contains(defect->field(i)->name()));
  const auto* fault = proto::CommunicationFault::Fault_descriptor();
  for (int i = 1; i < fault->value_count(); ++i) {
    if (fault->value(i)->name() == "WRONG_GROUP") continue;  // a mechanism of that name
    EXPECT_THAT(Words("fault"), ::testing::Contains(fault->value(i)->name()));
  }
}

// The word that stands for each header of layers/: a new one needs its own.
TEST(Glossary, HasEveryLayer) {
  const std::map<std::string, std::vector<std::string>> words_of = {
      {"latent_attention", {"multi_latent_attention"}},
      {"self_attention", {"self_attention", "q_layernorm"}},
      {"decoder", {"decoder"}},
      {"decoder_layer", {"decoder"}},
      {"position", {"position_embeddings"}},
      {"vocab_parallel", {"embedding"}},
      {"gated_delta_net", {"linear_attention", "in_proj", "out_proj", "out_norm", "replica"}},
      {"gather_region", {"gather_region"}},
      {"parallel_linear", {"linear_qkv", "linear_proj", "bias"}},
      {"regions", {"linear_qkv"}},  // what the linears communicate
      {"lora", {"lora"}},
      {"cross_entropy", {"output_layer"}},
      {"mlp", {"linear_fc1", "linear_fc2"}},
      {"shared_expert", {"shared_expert"}},
      {"rms_norm", {"layernorm"}}};
  const std::set<std::string> layers = Words("layer");
  for (const auto& folder : std::filesystem::directory_iterator(SUMONCE_SOURCE_DIR "/layers")) {
    if (!folder.is_directory() || folder.path().filename() == "testing") continue;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() != ".h") continue;
      const auto words = words_of.find(file.path().stem());
      ASSERT_NE(words, words_of.end()) << file.path() << " has no word in the glossary";
      for (const std::string& word : words->second) EXPECT_THAT(layers, ::testing::Contains(word));
    }
  }
}

// "before the finalizer tp: P(s), dp: E" is read with these.
TEST(Glossary, HasEveryState) {
  EXPECT_THAT(Words("state"), ::testing::UnorderedElementsAre("E", "S", "P", "M"));
}

// What a report can name, a reader can look up whole. Nothing mends what is right, and two words
// have no scenario: neither pipelines nor carried states are simulated.
TEST(Glossary, WordsOfReportsHaveFormulaScenarioAndCure) {
  const std::set<std::string> kinds = {"verdict", "mechanism", "rule",
                                       "mark",    "layer",     "operation"};
  for (const GlossaryEntry& entry : Glossary()) {
    if (!kinds.contains(entry.kind)) continue;
    EXPECT_NE(entry.formula, "") << entry.kind << " " << entry.word;
    EXPECT_EQ(entry.cure.empty(), entry.word == "RIGHT") << entry.kind << " " << entry.word;
    const std::set<std::string> unshown = {"shared", "DeltaState"};
    EXPECT_EQ(entry.shown_by.empty(), unshown.contains(entry.word))
        << entry.kind << " " << entry.word;
  }
}

// The model of the scenario that an operation names applies it.
TEST(Glossary, OperationsStandInTheirScenarios) {
  for (const GlossaryEntry& entry : GlossaryOfOperations()) {
    if (entry.shown_by.empty()) continue;
    const ReadResult read =
        ReadScenario(SUMONCE_SOURCE_DIR "/scenarios/" + entry.shown_by + ".textproto", "x", {});
    ASSERT_TRUE(read.ok()) << entry.shown_by;
    const ProofRun proof = Prove(read.scenario, {});
    const auto& nodes = proof.tape->nodes();
    EXPECT_TRUE(std::any_of(nodes.begin(), nodes.end(),
                            [&](const Tape::Node& node) {
                              return node.operation && node.operation->name() == entry.word;
                            }))
        << entry.word << " is not in " << entry.shown_by;
  }
}

TEST(Glossary, EveryWordStandsOnce) {
  std::set<std::string> words;
  for (const GlossaryEntry& entry : Glossary()) {
    EXPECT_TRUE(words.insert(entry.word).second) << entry.word;
    EXPECT_NE(entry.says, "") << entry.word;
  }
}

// What an entry says is shown by a scenario must be expected by it.
TEST(Glossary, ScenariosShowWhatTheyAreNamedFor) {
  for (const GlossaryEntry& entry : Glossary()) {
    if (entry.shown_by.empty()) continue;
    const std::string path = SUMONCE_SOURCE_DIR "/scenarios/" + entry.shown_by + ".textproto";
    const ReadResult read = ReadScenario(path, entry.shown_by, {});
    ASSERT_TRUE(read.ok()) << entry.word << ": " << path;
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (entry.kind == "defect" || entry.kind == "fault") {
      EXPECT_THAT(text, HasSubstr(entry.word)) << entry.shown_by;
    }
    if (entry.kind != "mechanism") continue;
    const bool drift = entry.word == "REPLICA_DRIFT";  // the consequence of what the file expects
    if (!drift) EXPECT_THAT(text, HasSubstr("mechanism: " + entry.word)) << entry.shown_by;
  }
}

TEST(Glossary, APresetPrintsItsRulesInOrder) {
  const GlossaryEntry entry = EntryOf("megatron_core_0_16");
  ASSERT_EQ(entry.details.size(), 11u);
  EXPECT_EQ(entry.details[0], "step data_parallel");
  EXPECT_EQ(entry.details[5], "step tensor_parallel");
  EXPECT_THAT(entry.details[6], HasSubstr("average_over_tp"));
  EXPECT_THAT(entry.details[7], HasSubstr("sequence_parallel_sum"));
  EXPECT_EQ(EntryOf("megatron_core_0_12").details.size(), 10u) << "0.12 has no average";
}

TEST(Glossary, ARuleSaysWhichVersionsClaimWhat) {
  const GlossaryEntry entry = EntryOf("sequence_parallel_sum");
  ASSERT_EQ(entry.details.size(), 2u);
  EXPECT_THAT(entry.details, ::testing::Contains(HasSubstr("qk_layernorm on: summed over tp  in "
                                                           "megatron_core_0_12")));
  EXPECT_THAT(entry.details,
              ::testing::Contains(HasSubstr("in megatron_core_0_13, megatron_core_0_14")));
}

TEST(Glossary, AnOperationShowsItsDeclaration) {
  EXPECT_THAT(EntryOf("Linear").details,
              ::testing::ElementsAre("linear in operand 1, 2", HasSubstr("sums over")));
  EXPECT_THAT(EntryOf("RmsNorm").details, ::testing::Contains(HasSubstr("mixes")));
}

}  // namespace
}  // namespace sumonce

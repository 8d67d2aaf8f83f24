// The given adapters (tests/data/adapters), each with its right answer, and adapters made from them
// with one thing wrong.
#include "capture/inspect/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/safetensors.h"

namespace sumonce::inspect {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Tensors = std::map<std::string, TensorToWrite>;

std::string Given(const std::string& name) { return SUMONCE_TEST_DATA "/adapters/" + name; }

std::vector<AdapterFault> Faults(const AdapterReport& report) {
  std::vector<AdapterFault> faults;
  for (const AdapterFinding& finding : report.findings) faults.push_back(finding.fault);
  return faults;
}

std::string All(const AdapterReport& report) {
  std::string text;
  for (const AdapterFinding& finding : report.findings) text += finding.says + "\n";
  for (const std::string& statement : report.statements) text += statement + "\n";
  return text;
}

TEST(InspectGiven, HealthyAndFreshAdaptersGiveNoFinding) {
  for (const char* name : {"peft-healthy", "untrained", "lora-replica-fixed"}) {
    const auto report = InspectAdapter(Given(name));
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(report->findings, IsEmpty()) << name << ": " << All(*report);
    EXPECT_EQ(ToResult(*report).outcome, RunOutcome::kPass);
  }
  EXPECT_THAT(All(*InspectAdapter(Given("untrained"))), HasSubstr("every lora_B is zero"));
}

// Rank 0's copy of the last layer's row target, whose tokens are all masked there.
TEST(InspectGiven, FindsTheSignatureOfLoraReplica) {
  for (const auto& [name, module] :
       {std::pair{"lora-replica-bug", "model.layers.3.self_attn.o_proj.lora_B"},
        std::pair{"last-o-proj-zeroed", "model.layers.1.self_attn.o_proj.lora_B"}}) {
    const auto report = InspectAdapter(Given(name));
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_THAT(Faults(*report), ElementsAre(AdapterFault::kLoraReplica)) << All(*report);
    EXPECT_THAT(report->findings[0].tensors, ElementsAre(module));
    EXPECT_EQ(ToResult(*report).outcome, RunOutcome::kFail);
  }
}

TEST(InspectGiven, NamesTheElementThatIsNotFinite) {
  const auto report = InspectAdapter(Given("nan"));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_THAT(Faults(*report), ElementsAre(AdapterFault::kNotFinite)) << All(*report);
  EXPECT_THAT(report->findings[0].says,
              HasSubstr("layers.1.self_attn.q_proj.lora_A holds NaN at [2, 5]"));
}

TEST(InspectGiven, SeesThatConfigAndTensorsDisagree) {
  const auto report = InspectAdapter(Given("wrong-rank-in-config"));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_THAT(Faults(*report), ElementsAre(AdapterFault::kShapeMismatch)) << All(*report);
  EXPECT_THAT(report->findings[0].says,
              HasSubstr("the rank is 16 in adapter_config.json and 4 in the tensors of all 8"));
}

// A copy of a given adapter that a test may break.
class InspectBroken : public ::testing::Test {
 protected:
  InspectBroken() {
    std::string pattern = ::testing::TempDir() + "/adapter_XXXXXX";
    dir_ = mkdtemp(pattern.data());
    Take("lora-replica-fixed");
  }
  ~InspectBroken() override { fs::remove_all(dir_); }

  void Take(const std::string& name) {
    tensors_.clear();
    const auto reader = SafetensorsReader::Open(Given(name) + "/adapter_model.safetensors").value();
    for (const auto& [tensor, info] : reader.tensors())
      tensors_[tensor] = {DType::kFloat32, info.shape, reader.Read(tensor).value()};
    std::ifstream file(Given(name) + "/adapter_config.json");
    config_ = nlohmann::json::parse(file);
  }

  TensorToWrite& Tensor(const std::string& name) {
    return tensors_.at("base_model.model.model.layers." + name + ".weight");
  }

  absl::StatusOr<AdapterReport> Inspect() {
    std::ofstream(dir_ + "/adapter_config.json") << config_.dump();
    EXPECT_TRUE(
        WriteSafetensors(dir_ + "/adapter_model.safetensors", tensors_, {{"format", "pt"}}, true)
            .ok());
    return InspectAdapter(dir_);
  }

  // The only finding's sentence.
  std::string Only(AdapterFault fault) {
    const auto report = Inspect();
    if (!report.ok()) return std::string(report.status().message());
    EXPECT_THAT(Faults(*report), ElementsAre(fault)) << All(*report);
    return report->findings.empty() ? "" : report->findings[0].says;
  }

  std::string dir_;
  Tensors tensors_;
  nlohmann::json config_;
};

void Fill(TensorToWrite& tensor, double value) {
  std::fill(tensor.values.begin(), tensor.values.end(), value);
}

TEST_F(InspectBroken, TheCopyItselfIsHealthy) {
  const auto report = Inspect();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->findings, IsEmpty()) << All(*report);
  EXPECT_THAT(report->about, HasSubstr("32 factors of 16 modules in 4 layers, r 8, scaling 2"));
  EXPECT_THAT(All(*report), HasSubstr("exported from Megatron's fused modules"));
}

TEST_F(InspectBroken, AZeroFactorElsewhereIsNotTheSignature) {
  Fill(Tensor("1.self_attn.o_proj.lora_B"), 0);
  EXPECT_THAT(Only(AdapterFault::kZeroFactor), HasSubstr("layers.1.self_attn.o_proj.lora_B"));
  Take("lora-replica-fixed");
  Fill(Tensor("3.self_attn.q_proj.lora_B"), 0);  // a column target of the last layer
  EXPECT_THAT(Only(AdapterFault::kZeroFactor), HasSubstr("layers.3.self_attn.q_proj.lora_B"));
  Take("lora-replica-fixed");
  for (const char* target : {"q_proj", "k_proj", "v_proj", "o_proj"})  // a frozen last layer
    Fill(Tensor(std::string("3.self_attn.") + target + ".lora_B"), 0);
  EXPECT_THAT(Only(AdapterFault::kZeroFactor), HasSubstr("layers.3.self_attn.o_proj.lora_B"));
}

TEST_F(InspectBroken, AZeroLoraAIsFound) {
  Fill(Tensor("2.self_attn.o_proj.lora_A"), 0);
  EXPECT_THAT(Only(AdapterFault::kZeroFactor), HasSubstr("layers.2.self_attn.o_proj.lora_A is"));
}

TEST_F(InspectBroken, FactorsInEachOthersPlacesAreFound) {
  Tensor("1.self_attn.o_proj.lora_B") = Tensor("2.self_attn.o_proj.lora_B");
  EXPECT_THAT(Only(AdapterFault::kEqualFactors),
              AllOf(HasSubstr("layers.1.self_attn.o_proj.lora_B"),
                    HasSubstr("layers.2.self_attn.o_proj.lora_B")));
  Take("lora-replica-fixed");
  Tensor("0.self_attn.k_proj.lora_B") = Tensor("0.self_attn.v_proj.lora_B");
  EXPECT_THAT(Only(AdapterFault::kEqualFactors), HasSubstr("layers.0.self_attn.v_proj.lora_B"));
}

// q, k and v share one lora_A; PEFT's own adapters do not, and are right.
TEST_F(InspectBroken, AFactorThatOtherLayersShareMustBeShared) {
  Tensor("1.self_attn.k_proj.lora_A").values[3] += 0.25;
  const std::string says = Only(AdapterFault::kUnsharedFactors);
  EXPECT_THAT(says, HasSubstr("layers.1.self_attn.k_proj.lora_A"));
  EXPECT_THAT(says, HasSubstr("in 3 other layers they are one tensor"));
}

TEST_F(InspectBroken, CountsEntriesThatAreNotFinite) {
  Tensor("0.self_attn.o_proj.lora_B").values[9] = -std::numeric_limits<double>::infinity();
  Tensor("0.self_attn.o_proj.lora_B").values[10] = std::nan("");
  EXPECT_THAT(Only(AdapterFault::kNotFinite),
              HasSubstr("holds -inf at [1, 1], the first of 2 entries that are not finite"));
}

TEST_F(InspectBroken, ShapesMustFitEachOther) {
  TensorToWrite& tensor = Tensor("0.self_attn.o_proj.lora_B");
  tensor.shape = {128, 4};
  EXPECT_THAT(Only(AdapterFault::kShapeMismatch),
              HasSubstr("o_proj: lora_A is [8, 64] and lora_B [128, 4]"));
  tensor.shape = {512};
  EXPECT_THAT(Only(AdapterFault::kShapeMismatch), HasSubstr("is [512], expected a matrix"));
}

TEST_F(InspectBroken, PatternsChangeTheRankThatIsExpected) {
  config_["rank_pattern"]["layers.0.self_attn.o_proj"] = 16;
  EXPECT_THAT(Only(AdapterFault::kShapeMismatch),
              HasSubstr("the rank is 16 in adapter_config.json and 8 in the tensors of "
                        "model.layers.0.self_attn.o_proj"));
  config_["rank_pattern"] = {{"self_attn.o_prj", 8}};
  EXPECT_THAT(Only(AdapterFault::kBadPattern), HasSubstr("rank_pattern names 'self_attn.o_prj'"));
  config_["rank_pattern"] = {{".*o_pr.*", 16}};  // Python's to decide
  EXPECT_THAT(Inspect()->findings, IsEmpty());
  config_["rank_pattern"] = nullptr;
  config_["alpha_pattern"] = {{"o_proj", -4}};
  EXPECT_THAT(Only(AdapterFault::kBadPattern), HasSubstr("gives 'o_proj' -4"));
}

TEST_F(InspectBroken, RsLoraScalesByTheRoot) {
  config_["use_rslora"] = true;
  EXPECT_THAT(Inspect()->about, HasSubstr("scaling 5.657 (lora_alpha / sqrt(r), rsLoRA)"));
}

TEST_F(InspectBroken, MissingAndExtraTensorsAreFound) {
  const TensorToWrite lone = Tensor("2.self_attn.o_proj.lora_B");
  tensors_.erase("base_model.model.model.layers.2.self_attn.o_proj.lora_B.weight");
  EXPECT_THAT(Only(AdapterFault::kMissingKey),
              HasSubstr("layers.2.self_attn.o_proj.lora_B is missing"));
  tensors_.erase("base_model.model.model.layers.2.self_attn.o_proj.lora_A.weight");
  EXPECT_THAT(Only(AdapterFault::kMissingKey),
              HasSubstr("layers.2.self_attn.o_proj has no factors, though the other layers'"));
  Take("lora-replica-fixed");
  tensors_["base_model.model.lm_head.weight"] = lone;
  EXPECT_THAT(Only(AdapterFault::kExtraKey), HasSubstr("base_model.model.lm_head.weight is"));
  config_["modules_to_save"] = {"lm_head"};
  EXPECT_THAT(Inspect()->findings, IsEmpty());
}

TEST_F(InspectBroken, TargetsAndTensorsMustNameTheSame) {
  config_["target_modules"] = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj"};
  EXPECT_THAT(Only(AdapterFault::kMissingKey), HasSubstr("target_modules names gate_proj"));
  config_["target_modules"] = {"q_proj", "k_proj", "v_proj"};
  EXPECT_THAT(Only(AdapterFault::kExtraKey), HasSubstr("target_modules does not name them"));
  config_["target_modules"] = ".*_proj";
  EXPECT_THAT(Inspect()->findings, IsEmpty());
}

TEST_F(InspectBroken, MixedDtypesAreFound) {
  Tensor("0.self_attn.o_proj.lora_A").dtype = DType::kBFloat16;
  EXPECT_THAT(Only(AdapterFault::kMixedDtype),
              HasSubstr("layers.0.self_attn.o_proj.lora_A.weight is bfloat16"));
}

// A layer's update that is a hundred times the others'; twice is nothing.
TEST_F(InspectBroken, ALayerFarFromTheOthersIsFound) {
  TensorToWrite& tensor = Tensor("2.self_attn.v_proj.lora_B");
  for (double& value : tensor.values) value *= 2;
  EXPECT_THAT(Inspect()->findings, IsEmpty());
  for (double& value : tensor.values) value *= 50;
  EXPECT_THAT(Only(AdapterFault::kNormOutlier), HasSubstr("layers.2.self_attn.v_proj"));
}

TEST_F(InspectBroken, BadFilesAreErrorsThatNameThem) {
  config_["r"] = "eight";
  config_["peft_type"] = "VERA";
  const absl::Status config = Inspect().status();
  EXPECT_EQ(config.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(config.message()),
              AllOf(HasSubstr("adapter_config.json"), HasSubstr("\"eight\""), HasSubstr("VERA")));

  const auto with_config = [&](const std::string& text) {
    std::ofstream(dir_ + "/adapter_config.json") << text;
    return std::string(InspectAdapter(dir_).status().message());
  };
  EXPECT_THAT(with_config("{"), HasSubstr("adapter_config.json"));
  EXPECT_THAT(with_config(std::string(100000, '[')), HasSubstr("adapter_config.json"));
  EXPECT_THAT(with_config(std::string((1 << 20) + 1, ' ')), HasSubstr("at most 1048576"));
  fs::remove(dir_ + "/adapter_config.json");
  ASSERT_EQ(mkfifo((dir_ + "/adapter_config.json").c_str(), 0600), 0);
  EXPECT_THAT(std::string(InspectAdapter(dir_).status().message()),
              HasSubstr("is not a regular file"));
  EXPECT_TRUE(absl::IsNotFound(InspectAdapter(dir_ + "/gone").status()));
}

TEST_F(InspectBroken, APickleIsNotRead) {
  ASSERT_TRUE(Inspect().ok());
  fs::rename(dir_ + "/adapter_model.safetensors", dir_ + "/adapter_model.bin");
  EXPECT_THAT(std::string(InspectAdapter(dir_).status().message()),
              HasSubstr("save_pretrained it again"));
}

TEST_F(InspectBroken, AFileWithoutFactorsIsAFinding) {
  tensors_.clear();
  config_["target_modules"] = nlohmann::json::array();
  EXPECT_THAT(Only(AdapterFault::kMissingKey), HasSubstr("no factor of LoRA at all"));
}

// Truncated anywhere, the file is refused or read, never worse.
TEST_F(InspectBroken, TruncatedFilesAreRefused) {
  ASSERT_TRUE(Inspect().ok());
  const std::string path = dir_ + "/adapter_model.safetensors";
  for (auto size = fs::file_size(path); size > 4096; size -= 4096) {
    fs::resize_file(path, size - 1);
    EXPECT_FALSE(InspectAdapter(dir_).ok()) << size;
  }
}

}  // namespace
}  // namespace sumonce::inspect

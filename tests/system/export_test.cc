// The exported adapter: its files as PEFT reads them, its rows by hand, and what the check says of
// the first founding case's export.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/safetensors.h"
#include "nlohmann/json.hpp"
#include "sim/export/peft_adapter.h"
#include "sim/hf_weights.h"
#include "sim/simulator.h"
#include "tests/system/shipped.h"
#include "verify/export_check.h"

namespace sumonce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Shapes = std::map<std::string, std::vector<int64_t>>;

constexpr char kBase[] = "base_model.model.model.";

// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = ::testing::TempDir() + "sumonce_export_" + test->name();
    std::filesystem::remove_all(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string model() const { return path_ + "/adapter_model.safetensors"; }
  std::string config() const { return path_ + "/adapter_config.json"; }

 private:
  std::string path_;
};

std::string Text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

RunRecord Ran(const Scenario& scenario, bool cured) {
  std::vector<Edit> edits = scenario.defects;
  if (cured) edits.insert(edits.end(), scenario.cures.begin(), scenario.cures.end());
  Model model(EffectiveModel(scenario));
  SimResult result =
      Simulate(scenario, edits, *StartWeights(scenario, model.params()), SimOptions());
  EXPECT_TRUE(result.status.ok()) << result.status;
  return result.record;
}

// A record of ranks that trained to exactly these weights.
RunRecord Trained(const Scenario& scenario, const Weights& weights) {
  const Mesh mesh = *Mesh::Create(scenario.mesh);
  Model model(EffectiveModel(scenario));
  RunRecord record;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    StepRecord step;
    for (const Param& param : model.params().all()) {
      step.params[param.name].weight_after = param.shards.Slice(weights.at(param.name), mesh, rank);
    }
    record.ranks.push_back({step});
  }
  return record;
}

// Layers 1 and 3 of lora/pr_173: hidden 16, 8 query and 4 key-value heads of 4, an output gate, r
// = 8.
Shapes Pr173Shapes() {
  Shapes shapes;
  for (const char* layer : {"layers.1", "layers.3"}) {
    const std::string attention = kBase + std::string(layer) + ".self_attn.";
    for (const char* name : {"q_proj", "k_proj", "v_proj"})
      shapes[attention + name + ".lora_A.weight"] = {8, 16};
    shapes[attention + "q_proj.lora_B.weight"] = {2 * 8 * 4, 8};
    shapes[attention + "k_proj.lora_B.weight"] = {4 * 4, 8};
    shapes[attention + "v_proj.lora_B.weight"] = {4 * 4, 8};
    shapes[attention + "o_proj.lora_A.weight"] = {8, 8 * 4};
    shapes[attention + "o_proj.lora_B.weight"] = {16, 8};
  }
  return shapes;
}

TEST(Export, FilesAreNamedShapedAndTypedAsPeftReadsThem) {
  const Scenario scenario = testing::Shipped("lora/pr_173");
  for (bool cured : {false, true}) {
    const Folder folder;
    ASSERT_TRUE(ExportAdapter(scenario, Ran(scenario, cured), folder.path(), false).ok());
    const SafetensorsReader file = *SafetensorsReader::Open(folder.model());
    Shapes shapes;
    for (const auto& [name, info] : file.tensors()) {
      shapes[name] = info.shape;
      EXPECT_EQ(info.dtype, DType::kFloat32) << name;
    }
    EXPECT_EQ(shapes, Pr173Shapes());
    EXPECT_EQ(file.metadata().at("format"), "pt");
  }
}

TEST(Export, ConfigSaysWhatWasTrained) {
  const Scenario scenario = testing::Shipped("lora/pr_173");
  const Folder folder;
  ASSERT_TRUE(ExportAdapter(scenario, Ran(scenario, true), folder.path(), false).ok());
  const nlohmann::json config = nlohmann::json::parse(Text(folder.config()));
  EXPECT_EQ(config.at("peft_type"), "LORA");
  EXPECT_EQ(config.at("task_type"), "CAUSAL_LM");
  EXPECT_EQ(config.at("r"), 8);
  EXPECT_EQ(config.at("lora_alpha"), 16);
  EXPECT_EQ(config.at("bias"), "none");
  EXPECT_EQ(config.at("fan_in_fan_out"), false);
  EXPECT_EQ(config.at("use_rslora"), false);
  EXPECT_EQ(config.at("use_dora"), false);
  EXPECT_THAT(config.at("target_modules").get<std::vector<std::string>>(),
              UnorderedElementsAre("q_proj", "k_proj", "v_proj", "o_proj"));
}

// Two groups of two query heads of two, cut over tp 2.
Scenario TinyAttention() {
  Scenario scenario;
  scenario.mesh.tp = 2;
  scenario.model.hidden = 4;
  scenario.model.vocab = 4;
  const SelfAttentionConfig attention = {.hidden = 4,
                                         .num_query_groups = 2,
                                         .heads_per_group = 2,
                                         .head_dim = 2,
                                         .rope = {.rotary_dim = 2},
                                         .output_gate = true};
  scenario.model.layers = {{.mixer = attention, .mlp = {}}};
  scenario.model.common.lora = {.enabled = true, .r = 1, .targets = {"linear_qkv"}};
  return scenario;
}

// Fused, each group's rows are: 0-3 queries of its two heads, 4-7 their gates, 8-9 key, 10-11
// value. Hugging Face's q_proj has each head's query and behind it its gate.
TEST(Export, RowsOfGatedAttentionByHand) {
  const Scenario scenario = TinyAttention();
  Model model(EffectiveModel(scenario));
  Weights weights = *StartWeights(scenario, model.params());
  Tensor& lora_B = weights.at("decoder.layers.0.self_attention.linear_qkv.lora_B");
  ASSERT_EQ(lora_B.count(), 24);
  for (int64_t row = 0; row < 24; ++row) lora_B.data()[row] = static_cast<double>(row);
  const auto tensors = AdapterTensors(scenario, Trained(scenario, weights));
  const std::string attention = kBase + std::string("layers.0.self_attn.");
  EXPECT_THAT(tensors.at(attention + "q_proj.lora_B.weight").values,
              ElementsAre(0, 1, 4, 5, 2, 3, 6, 7, 12, 13, 16, 17, 14, 15, 18, 19));
  EXPECT_THAT(tensors.at(attention + "k_proj.lora_B.weight").values, ElementsAre(8, 9, 20, 21));
  EXPECT_THAT(tensors.at(attention + "v_proj.lora_B.weight").values, ElementsAre(10, 11, 22, 23));
  const std::span<const double> lora_A =
      weights.at("decoder.layers.0.self_attention.linear_qkv.lora_A").values();
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    EXPECT_THAT(tensors.at(attention + name + ".lora_A.weight").values,
                ::testing::ElementsAreArray(lora_A));
  }
}

// The golden language model with its in_proj packed one way or the other.
Scenario TinyLm(GdnPacking packing) {
  Scenario scenario = testing::Shipped("real/tiny_lm_lora");
  std::get<GatedDeltaNetConfig>(scenario.model.layers[0].mixer).packing = packing;
  return scenario;
}

Weights Imported(const Scenario& scenario) {
  Model model(EffectiveModel(scenario));
  return *ImportHfWeights(scenario, *SafetensorsReader::Open(scenario.weights_file),
                          model.params());
}

TEST(Export, IsTheSameForEitherPackingOfGatedDeltaNet) {
  const Scenario megatron = TinyLm(GdnPacking::kMegatron);
  const Scenario per_key_head = TinyLm(GdnPacking::kPerKeyHead);
  const std::string fused = "decoder.layers.0.self_attention.in_proj.lora_B";
  EXPECT_THAT(
      Imported(megatron).at(fused).values(),
      ::testing::Not(::testing::ElementsAreArray(Imported(per_key_head).at(fused).values())));
  const auto from_megatron = AdapterTensors(megatron, Trained(megatron, Imported(megatron)));
  const auto from_per_key_head =
      AdapterTensors(per_key_head, Trained(per_key_head, Imported(per_key_head)));
  ASSERT_EQ(from_megatron.size(), from_per_key_head.size());
  for (const auto& [name, tensor] : from_megatron) {
    EXPECT_EQ(tensor.shape, from_per_key_head.at(name).shape) << name;
    EXPECT_EQ(tensor.values, from_per_key_head.at(name).values) << name;
  }
}

// A block-diagonal adapter is exported whole: its own block of columns holds the file's lora_B, the
// others zeros, and the configuration gives the module its rank and keeps lora_alpha / r.
TEST(Export, SeparateAdaptersKeepTheirRankAndScale) {
  const Scenario scenario = TinyLm(GdnPacking::kMegatron);
  const Folder folder;
  ASSERT_TRUE(
      ExportAdapter(scenario, Trained(scenario, Imported(scenario)), folder.path(), false).ok());
  const SafetensorsReader exported = *SafetensorsReader::Open(folder.model());
  const SafetensorsReader golden = *SafetensorsReader::Open(scenario.weights_file);
  const std::string module =
      "layers.0.linear_attn.in_proj_z";  // second of four: columns 3 to 5 of 12
  const std::vector<double> fused = *exported.Read(kBase + module + ".lora_B.weight");
  const std::vector<double> own = *golden.Read("param." + module + ".lora_B");  // [20, 3]
  ASSERT_EQ(fused.size(), 20u * 12);
  for (size_t i = 0; i < fused.size(); ++i) {
    const size_t row = i / 12, column = i % 12;
    EXPECT_EQ(fused[i], column / 3 == 1 ? own[row * 3 + column % 3] : 0)
        << "row " << row << " column " << column;
  }
  const nlohmann::json config = nlohmann::json::parse(Text(folder.config()));
  EXPECT_EQ(config.at("r"), 3);
  EXPECT_EQ(config.at("lora_alpha"), 6);
  EXPECT_EQ(config.at("rank_pattern").at(module), 12);
  EXPECT_EQ(config.at("alpha_pattern").at(module), 24);
  EXPECT_FALSE(config.at("rank_pattern").contains("layers.0.linear_attn.out_proj"));
}

TEST(Export, OverwritesNothingUnasked) {
  const Scenario scenario = TinyAttention();
  Model model(EffectiveModel(scenario));
  const RunRecord record = Trained(scenario, *StartWeights(scenario, model.params()));
  for (bool model_is_there : {true, false}) {
    const Folder folder;
    const std::string there = model_is_there ? folder.model() : folder.config();
    const std::string other = model_is_there ? folder.config() : folder.model();
    std::filesystem::create_directories(folder.path());
    std::ofstream(there) << "kept";
    const absl::Status status = ExportAdapter(scenario, record, folder.path(), false);
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(status.message()), HasSubstr(there));
    EXPECT_EQ(Text(there), "kept");
    EXPECT_FALSE(std::filesystem::exists(other)) << "half an adapter beside another's " << there;
    EXPECT_TRUE(ExportAdapter(scenario, record, folder.path(), true).ok());
    EXPECT_TRUE(SafetensorsReader::Open(folder.model()).ok());
    EXPECT_EQ(nlohmann::json::parse(Text(folder.config())).at("r"), 1);
  }
}

std::vector<std::string> Keys(const std::map<std::string, std::string>& map) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

// Rank 0's copies are exported: layer 3's lora_B is zero there, and every replicated factor has
// other copies.
TEST(ExportCheck, NamesDifferingReplicasAndZeroTensorsOfTheFoundingCase) {
  const Scenario scenario = testing::Shipped("lora/pr_173");
  const ExportCheck check = CheckExported(scenario, Ran(scenario, false), "", false, scenario.name);
  ASSERT_TRUE(check.status.ok()) << check.status;
  const std::string layer_1 = "decoder.layers.1.self_attention.",
                    layer_3 = "decoder.layers.3.self_attention.";
  EXPECT_THAT(Keys(check.differs),
              UnorderedElementsAre(layer_1 + "linear_proj.lora_B", layer_3 + "linear_proj.lora_B",
                                   layer_1 + "linear_qkv.lora_A", layer_3 + "linear_qkv.lora_A"));
  EXPECT_THAT(check.differs.at(layer_3 + "linear_proj.lora_B"), HasSubstr("rank 3 by up to"));
  EXPECT_THAT(check.differs.at(layer_3 + "linear_proj.lora_B"),
              ::testing::Not(HasSubstr("rank 1")));
  EXPECT_THAT(check.notes, ElementsAre(AllOf(HasSubstr("layers.3.self_attn.o_proj.lora_B.weight"),
                                             HasSubstr("all zero"))));
}

TEST(ExportCheck, FindsNothingInTheCuredRun) {
  const Scenario scenario = testing::Shipped("lora/pr_173");
  const ExportCheck check = CheckExported(scenario, Ran(scenario, true), "", false, scenario.name);
  ASSERT_TRUE(check.status.ok()) << check.status;
  EXPECT_THAT(Keys(check.differs), IsEmpty());
  EXPECT_THAT(check.notes, IsEmpty());
}

}  // namespace
}  // namespace sumonce

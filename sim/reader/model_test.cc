// The model's part of a scenario file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sim/scenario_reader.h"

namespace sumonce {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ReadsModel : public ::testing::Test {
 protected:
  ReadsModel() {
    std::string pattern = ::testing::TempDir() + "/model_XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~ReadsModel() override { fs::remove_all(dir_); }

  ReadResult Read(const std::string& layer) const {
    std::ofstream(dir_ + "/a.textproto") << "model { layer { " << layer << " } }";
    return ReadScenario(dir_ + "/a.textproto", "area/a", {});
  }

  std::string dir_;
};

// A norm that stands in front is not fused as well.
TEST_F(ReadsModel, NormsStandInFrontOrAreFused) {
  const ReadResult fused = Read("self_attention { } mlp { }");
  ASSERT_TRUE(fused.ok());
  const DecoderLayerConfig& both = fused.scenario.model.layers[0];
  EXPECT_TRUE(std::get<SelfAttentionConfig>(both.mixer).layer_norm && both.mlp->layer_norm);
  const ReadResult apart =
      Read("self_attention { } mlp { } input_layernorm: true pre_mlp_layernorm: true");
  ASSERT_TRUE(apart.ok());
  const DecoderLayerConfig& own = apart.scenario.model.layers[0];
  EXPECT_TRUE(own.input_layernorm && own.pre_mlp_layernorm);
  EXPECT_FALSE(std::get<SelfAttentionConfig>(own.mixer).layer_norm || own.mlp->layer_norm);
}

TEST_F(ReadsModel, ANormNeedsSomethingBehindIt) {
  const ReadResult mixer = Read("mlp { } input_layernorm: true");
  ASSERT_EQ(mixer.mistakes.size(), 1u);
  EXPECT_THAT(mixer.mistakes[0].message, HasSubstr("input_layernorm without a mixer"));
  const ReadResult mlp = Read("self_attention { } pre_mlp_layernorm: true");
  ASSERT_EQ(mlp.mistakes.size(), 1u);
  EXPECT_THAT(mlp.mistakes[0].message, HasSubstr("pre_mlp_layernorm without mlp"));
}

}  // namespace
}  // namespace sumonce

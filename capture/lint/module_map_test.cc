// A job's own modules, described in a textproto.
#include "capture/lint/module_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace sumonce::lint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ModuleMapTest : public ::testing::Test {
 protected:
  ModuleMapTest() {
    std::string pattern = ::testing::TempDir() + "/map_XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~ModuleMapTest() override { std::filesystem::remove_all(dir_); }

  absl::StatusOr<ModuleMap> Read(const std::string& text) const {
    std::ofstream(dir_ + "/map.textproto") << text;
    return ReadModuleMap(dir_ + "/map.textproto");
  }
  std::string Mistake(const std::string& text) const {
    return std::string(Read(text).status().message());
  }

  std::string dir_;
};

TEST_F(ModuleMapTest, TheFirstEntryThatFitsDecides) {
  const auto map = Read(R"(
# The gate, and everything of ours.
module { path: "*.gate" param { name: "weight" class: PARTIAL } param { class: COMPLETE } }
module { class: "mine.*" acts_as: "MLP" }
)");
  ASSERT_TRUE(map.ok()) << map.status();
  const ModuleMapEntry* gate = map->Find("decoder.layers.0.gate", "mine.Gate");
  ASSERT_NE(gate, nullptr);
  ASSERT_EQ(gate->params.size(), 2u);
  EXPECT_EQ(gate->params[0].grad_class, GradClass::kPartial);
  EXPECT_EQ(gate->params[1].name, "*");
  EXPECT_EQ(map->Find("decoder.layers.0.mlp", "mine.Mlp")->acts_as, ModuleKind::kMlp);
  EXPECT_EQ(map->Find("decoder.layers.0.mlp", "yours.Mlp"), nullptr);
}

TEST_F(ModuleMapTest, EveryKindHasItsName) {
  for (const auto& [name, kind] : KindsOfModuleMap()) {
    const auto map = Read("module { path: \"a\" acts_as: \"" + std::string(name) + "\" }");
    ASSERT_TRUE(map.ok()) << map.status();
    EXPECT_EQ(map->modules[0].acts_as, kind) << name;
  }
}

TEST_F(ModuleMapTest, MistakesHaveTheirPlaces) {
  EXPECT_THAT(Mistake("module { clas: \"a\" }"), HasSubstr("map.textproto:1:"));
  EXPECT_THAT(Mistake("\n  module { class: \"a\" acts_as: \"ROW_PARALEL_LINEAR\" }"),
              AllOf(HasSubstr("map.textproto:2:3: error: acts_as: 'ROW_PARALEL_LINEAR'"),
                    HasSubstr("did you mean ROW_PARALLEL_LINEAR?")));
  EXPECT_THAT(Mistake("module { acts_as: \"MLP\" }"), HasSubstr("neither class nor path"));
  EXPECT_THAT(Mistake("module { path: \"a\" }"), HasSubstr("neither acts_as nor param"));
  EXPECT_THAT(Mistake("module { path: \"a\" param { name: \"w\" } }"),
              HasSubstr("param without class"));
  EXPECT_THAT(Mistake("module { path: \"a\" acts_as: \"MLP\" param { class: SHARD } }"),
              HasSubstr("take one out"));
  EXPECT_TRUE(absl::IsNotFound(ReadModuleMap(dir_ + "/gone").status()));
  EXPECT_FALSE(ReadModuleMap(dir_).ok());
}

}  // namespace
}  // namespace sumonce::lint

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "sim/scenario_reader.h"

namespace sumonce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class FindScenariosTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "findXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  void Touch(const std::string& name) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << "seed: 1\n";
  }
  std::vector<std::string> Names(const std::vector<std::string>& paths) {
    mistakes_.clear();
    std::vector<std::string> names;
    for (const std::string& path : paths) whole_.push_back((root_ / path).string());
    for (const ScenarioFile& file : FindScenarios(whole_, mistakes_)) {
      EXPECT_TRUE(fs::exists(file.path)) << file.path;
      names.push_back(file.name);
    }
    whole_.clear();
    return names;
  }

  fs::path root_;
  std::vector<std::string> whole_;
  std::vector<Mistake> mistakes_;
};

TEST_F(FindScenariosTest, NamesAreBelowTheNearestScenariosFolder) {
  Touch("scenarios/lora/b.textproto");
  Touch("scenarios/lora/a.textproto");
  Touch("scenarios/gdn/deep/c.textproto");
  Touch("scenarios/top.textproto");
  Touch("scenarios/lora/README.md");
  EXPECT_THAT(Names({"scenarios"}), ElementsAre("gdn/deep/c", "lora/a", "lora/b", "top"));
  EXPECT_THAT(Names({"scenarios/lora/b.textproto", "scenarios/gdn"}),
              ElementsAre("gdn/deep/c", "lora/b"));
  EXPECT_THAT(mistakes_, IsEmpty());
}

TEST_F(FindScenariosTest, ElsewhereTheFolderIsTheArea) {
  Touch("mine/x.textproto");
  Touch("mine/y.txt");
  EXPECT_THAT(Names({"mine/x.textproto", "mine/y.txt"}), ElementsAre("mine/x", "mine/y.txt"));
}

TEST_F(FindScenariosTest, EachFileOnceAndNoLinkIsFollowedInCircles) {
  Touch("scenarios/a/x.textproto");
  fs::create_directory_symlink("..", root_ / "scenarios/a/loop");
  fs::create_symlink("nowhere", root_ / "scenarios/a/gone");
  EXPECT_THAT(Names({"scenarios", "scenarios/a", "scenarios/a/../a/x.textproto"}),
              ElementsAre("a/x"));
}

TEST_F(FindScenariosTest, WhatIsNotThereIsAMistakeThatNamesTheNearest) {
  Touch("scenarios/lora/row_flag_missing.textproto");
  EXPECT_THAT(Names({"scenarios/lora/row_flag_mising.textproto"}), IsEmpty());
  ASSERT_EQ(mistakes_.size(), 1u);
  EXPECT_THAT(Format(mistakes_[0]),
              HasSubstr("row_flag_mising.textproto: error: cannot be read: No "
                        "such file or directory, expected a scenario file"));
  EXPECT_THAT(mistakes_[0].message, HasSubstr("lora/row_flag_missing.textproto\"?"));
  EXPECT_THAT(Names({"scenarios/lora/row_flag_missing"}), IsEmpty());
  EXPECT_THAT(mistakes_[0].message, HasSubstr("lora/row_flag_missing.textproto\"?"));
}

}  // namespace
}  // namespace sumonce

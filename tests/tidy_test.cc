// The tree keeps the house rules, and each rule finds what it is for.
#include "tests/tidy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace sumonce::tidy {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

bool IsOurs(const fs::path& path) {
  static const auto& extensions = *new std::set<std::string>{
      ".h", ".cc", ".cu", ".py", ".cmake", ".proto", ".textproto", ".md", ".json"};
  return extensions.contains(path.extension().string()) || path.filename() == "CMakeLists.txt" ||
         path.filename() == "dev";
}

// The sources under `root`: build trees, hidden folders and test data are not read.
std::vector<File> ReadTree(const fs::path& root) {
  std::vector<File> files;
  for (auto entry = fs::recursive_directory_iterator(root);
       entry != fs::recursive_directory_iterator(); ++entry) {
    const std::string path = fs::relative(entry->path(), root).generic_string();
    if (entry->is_directory() &&
        (path.starts_with(".") || path.starts_with("build") || path == "tests/data")) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && IsOurs(entry->path())) {
      std::ostringstream text;
      text << std::ifstream(entry->path(), std::ios::binary).rdbuf();
      files.push_back({path, text.str()});
    }
  }
  return files;
}

TEST(Tree, KeepsTheHouseRules) {
  const std::vector<File> files = ReadTree(SUMONCE_SOURCE_DIR);
  ASSERT_GT(files.size(), 20u) << "the tree was not found at " SUMONCE_SOURCE_DIR;
  for (const File& file : files) {
    for (const std::string& breach : CheckAll(file)) ADD_FAILURE() << breach;
  }
}

// "docs/NAME.md", with or without a "Heading" behind it, leads somewhere.
TEST(Tree, CitesOnlyPagesAndHeadingsThatExist) {
  const std::vector<File> files = ReadTree(SUMONCE_SOURCE_DIR);
  std::set<std::string> places;
  for (const File& file : files) {
    const Breaches headings = Headings(file);
    places.insert(headings.begin(), headings.end());
  }
  ASSERT_TRUE(places.contains("docs/THEORY.md"));
  for (const File& file : files) {
    for (const std::string& breach : CheckCitations(file, places)) ADD_FAILURE() << breach;
  }
}

TEST(Citations, FindsMissingPagesAndHeadings) {
  const File page{"docs/A.md", "# A\n\n## Big words\n"};
  const Breaches headings = Headings(page);
  const std::set<std::string> places(headings.begin(), headings.end());
  EXPECT_THAT(
      CheckCitations({"base/a.h", "// (docs/A.md)\n// docs/A.md, \"Big\n// words\"\n"}, places),
      IsEmpty());
  EXPECT_THAT(CheckCitations({"base/a.h", "//\n// docs/B.md\n"}, places),
              ElementsAre(HasSubstr("a.h:2: cites docs/B.md")));
  EXPECT_THAT(CheckCitations({"base/a.h", "// docs/A.md \"Small words\"\n"}, places),
              ElementsAre(HasSubstr("Small words")));
}

// The chain is strict: right of oneself, and beside oneself, are both refused.
TEST(IncludeDirection, RefusesRightAndBeside) {
  EXPECT_THAT(CheckIncludeDirection({"spmd/a.cc", "#include <vector>\n#include \"layers/b.h\"\n"}),
              ElementsAre(HasSubstr("spmd/a.cc:2: spmd includes layers/b.h")));
  EXPECT_THAT(CheckIncludeDirection({"base/a.h", "#include \"proto/scenario.pb.h\"\n"}),
              ElementsAre(HasSubstr("proto")));
  EXPECT_THAT(CheckIncludeDirection({"trace/a.h", "# include \"capture/b.h\"\n"}),
              ElementsAre(HasSubstr("capture")));
}

TEST(IncludeDirection, AllowsLeftOwnAndThirdParty) {
  EXPECT_THAT(CheckIncludeDirection(
                  {"verify/a.cc",
                   "#include \"verify/a.h\"\n#include \"sim/b.h\"\n#include \"base/c.h\"\n"
                   "#include \"absl/status/status.h\"\n"}),
              IsEmpty());
  EXPECT_THAT(CheckIncludeDirection({"tests/a.cc", "#include \"cli/b.h\"\n"}), IsEmpty());
}

TEST(TransportsArePrivate, RefusesOneOutsideItsFolder) {
  const std::string text = "#include \"comm/in_process/world.h\"\n";
  EXPECT_THAT(CheckTransportsArePrivate({"comm/transport.cc", text}),
              ElementsAre(HasSubstr("comm/transport.h")));
  EXPECT_THAT(CheckTransportsArePrivate({"layers/a.cc", text}),
              ElementsAre(HasSubstr("layers/a.cc:1")));
  EXPECT_THAT(CheckTransportsArePrivate({"comm/in_process/world.cc", text}), IsEmpty());
}

TEST(ProtobufStaysInside, RefusesHeadersAndFoldersOfPlainStructs) {
  const std::string text = "#include \"proto/report.pb.h\"\n";
  EXPECT_THAT(CheckProtobufStaysInside({"report/a.h", text}),
              ElementsAre(HasSubstr("in a header")));
  EXPECT_THAT(CheckProtobufStaysInside({"layers/a.cc", text}),
              ElementsAre(HasSubstr("plain structs")));
  EXPECT_THAT(CheckProtobufStaysInside({"report/a.cc", text}), IsEmpty());
}

TEST(HeaderForm, WantsContractAndGuard) {
  EXPECT_THAT(CheckHeaderForm({"base/a.h", "#pragma once\n"}),
              ElementsAre(HasSubstr("comment"), HasSubstr("pragma")));
  EXPECT_THAT(CheckHeaderForm({"base/a.h", "// What it is.\n#pragma once\n"}), IsEmpty());
}

std::string Repeat(const std::string& line, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += line;
  return text;
}

TEST(Lengths, FindsLongFilesAndFunctions) {
  EXPECT_THAT(CheckLengths({"base/a.cc", Repeat("\n", 501)}), ElementsAre(HasSubstr("501 lines")));
  EXPECT_THAT(CheckLengths({"base/a.cc", Repeat("\n", 500)}), IsEmpty());
  const std::string head = "// About.\nint a;\nvoid Long(int a,\n          int b) {\n";
  EXPECT_THAT(CheckLengths({"base/a.cc", head + Repeat("  F();\n", 78) + "}\n"}),
              ElementsAre(HasSubstr("base/a.cc:3: a function of 81 lines")));
  EXPECT_THAT(CheckLengths({"base/a.cc", head + Repeat("  F();\n", 77) + "}\n"}), IsEmpty());
}

TEST(Lengths, ClassesAndNamespacesAreNoFunctions) {
  EXPECT_THAT(CheckLengths({"base/a.h", "namespace a {\nclass B {\n" + Repeat("  int c;\n", 90) +
                                            "};\n}  // namespace a\n"}),
              IsEmpty());
}

TEST(Determinism, RefusesLibmClocksAndHashOrder) {
  EXPECT_THAT(CheckDeterminism({"layers/a.cc", "y = std::exp(x);\n"}),
              ElementsAre(HasSubstr("base/math.h")));
  EXPECT_THAT(CheckDeterminism({"sim/a.cc", "#include <random>\n#include <chrono>\n"}),
              ElementsAre(HasSubstr("base/random.h"), HasSubstr("clock")));
  EXPECT_THAT(CheckDeterminism({"spmd/a.h", "std::unordered_map<Param*, int> m;\n"}),
              ElementsAre(HasSubstr("address")));
  EXPECT_THAT(CheckDeterminism({"verify/a.cc", "std::reduce(a, b);\n"}),
              ElementsAre(HasSubstr("order")));
  EXPECT_THAT(CheckDeterminism({"spmd/a.cc", "y = std::sqrt(x) + std::fma(a, b, c) + Exp(x);\n"}),
              IsEmpty());
}

TEST(Text, RefusesUnfinishedWorkAndBlanks) {
  EXPECT_THAT(CheckText({"base/a.cc", std::string("// TO") + "DO: later\n"}),
              ElementsAre(HasSubstr("a.cc:1: 'TO")));
  EXPECT_THAT(CheckText({"README.md", std::string("see /ho") + "me/me/x\n"}),
              ElementsAre(HasSubstr("one machine")));
  EXPECT_THAT(CheckText({"base/a.cc", "int a; \n\tint b;\n"}),
              ElementsAre(HasSubstr("a.cc:2"), HasSubstr("a.cc:1")));
  EXPECT_THAT(CheckText({"base/a.cc", "int a;"}), ElementsAre(HasSubstr("newline")));
}

TEST(ScenarioForm, WantsSchemaLinesAndIdea) {
  const std::string lines =
      "# proto-file: proto/scenario.proto\n# proto-message: sumonce.proto.Scenario\n";
  EXPECT_THAT(CheckScenarioForm({"scenarios/lora/a.textproto", lines + "mesh {}\n"}),
              ElementsAre(HasSubstr("idea")));
  EXPECT_THAT(CheckScenarioForm({"scenarios/lora/a.textproto", lines + "# One idea.\nmesh {}\n"}),
              IsEmpty());
}

}  // namespace
}  // namespace sumonce::tidy

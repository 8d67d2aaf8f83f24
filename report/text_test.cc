// The words and layouts that all formats share.
#include <gtest/gtest.h>

#include "report/describe.h"
#include "report/finding_groups.h"
#include "report/testing/sample_results.h"
#include "report/text_table.h"
#include "report/utf8.h"

namespace sumonce {
namespace {

TEST(Describe, ElapsedChangesUnitBeforeItRoundsUp) {
  EXPECT_EQ(ElapsedText(0.4), "0 us");
  EXPECT_EQ(ElapsedText(999.4), "999 us");
  EXPECT_EQ(ElapsedText(999.6), "1 ms");
  EXPECT_EQ(ElapsedText(999'600), "1 s");
  EXPECT_EQ(ElapsedText(12'345'678), "12.3 s");
}

TEST(Describe, EveryMechanismHasAMeaning) {
  for (int i = 1; i <= static_cast<int>(Mechanism::kNotFinite); ++i)
    EXPECT_NE(Meaning(static_cast<Mechanism>(i)), "") << Name(static_cast<Mechanism>(i));
}

TEST(Describe, MeshShowsWhatIsLargerThanOne) {
  EXPECT_EQ(MeshText({}), "tp=1");
  EXPECT_EQ(MeshText({.tp = 1, .cp = 2, .dp = 4}), "cp=2 dp=4");
}

TEST(Describe, NumbersNeverRoundToZero) {
  EXPECT_EQ(NumberText(-0.0), "0");
  EXPECT_EQ(NumberText(5e-324), "4.941e-324");
}

TEST(Describe, LocationLeavesOutWhatIsUnknown) {
  EXPECT_EQ(LocationText({"a", 3, 4}), "a:3:4");
  EXPECT_EQ(LocationText({"a", 3, 0}), "a:3");
  EXPECT_EQ(LocationText({"a", 0, 0}), "a");
}

TEST(FindingGroups, DifferentOutcomesOfTheTrialAreDifferentGroups) {
  std::vector<Finding> findings = {testing::MissingSum("a"), testing::MissingSum("b")};
  EXPECT_EQ(GroupFindings(findings).size(), 1u);
  findings[1].cure->result = "still wrong: rank 1 differs";
  EXPECT_EQ(GroupFindings(findings).size(), 2u);
  EXPECT_TRUE(GroupFindings({}).empty());
}

TEST(FindingGroups, StepsAreCollectedAndParametersAppearOnce) {
  std::vector<Finding> findings = {testing::MissingSum("a"), testing::MissingSum("a"),
                                   testing::MissingSum("b")};
  findings[0].verdict.step = 2;
  const auto groups = GroupFindings(findings);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].params, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(groups[0].steps, (std::vector<int>{1, 2}));
}

// What was expected must not hide what was not.
TEST(FindingGroups, ExpectedAndUnexpectedStayApart) {
  const Expectation expectation;
  std::vector<Finding> findings = {testing::MissingSum("a"), testing::MissingSum("b")};
  findings[0].expectation = &expectation;
  EXPECT_EQ(GroupFindings(findings).size(), 2u);
}

TEST(FindingGroups, StepsText) {
  EXPECT_EQ(StepsText({1}), "");
  EXPECT_EQ(StepsText({3}), "step 3");
  EXPECT_EQ(StepsText({1, 2, 3}), "steps 1-3");
  EXPECT_EQ(StepsText({1, 11, 21, 31, 41}), "steps 1, 11, 21 and 2 more");
}

TEST(TextTable, ColumnsAlignByCharactersNotBytes) {
  EXPECT_EQ(AlignedRows({{"\xCE\xBB", "1"}, {"ab", "10"}}, 1, 1), " \xCE\xBB    1\n ab  10\n");
}

TEST(TextTable, ATableOfWordsHasTitleAndColumns) {
  const TextTable table{.title = "by kind",
                        .columns = {"kind", "count", "verdict"},
                        .rows = {{"*.lora_B", "8", "MISSING_SUM"}, {"*.weight", "16", "RIGHT"}}};
  EXPECT_EQ(TextTableText(table, 2),
            "  by kind\n"
            "    kind      count  verdict\n"
            "    *.lora_B  8      MISSING_SUM\n"
            "    *.weight  16     RIGHT\n");
}

TEST(TextTable, WrapsBeforeColumnHundred) {
  const std::vector<std::string> items(3, std::string(47, 'x'));
  const std::string x(47, 'x');
  EXPECT_EQ(WrappedItems(items, 3), "   " + x + "   " + x + "\n   " + x + "\n");
  EXPECT_EQ(WrappedItems(items, 4), "    " + x + "\n    " + x + "\n    " + x + "\n");
}

TEST(Utf8, KeepsCharactersAndReplacesTheRest) {
  const std::string valid = "a\xC2\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  EXPECT_EQ(ToUtf8(valid), valid);
  EXPECT_EQ(ToUtf8("\xC0\xAF"), "??") << "overlong";
  EXPECT_EQ(ToUtf8("\xED\xA0\x80"), "???") << "surrogate";
  EXPECT_EQ(ToUtf8("\xE2\x82"), "??") << "cut short";
  EXPECT_EQ(ToUtf8("\xF4\x90\x80\x80"), "????") << "beyond the last character";
}

}  // namespace
}  // namespace sumonce

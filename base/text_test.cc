#include "base/text.h"

#include <gtest/gtest.h>

namespace sumonce {
namespace {

TEST(TextTest, StarsAndQuestionMarks) {
  EXPECT_TRUE(
      GlobMatches("*.linear_proj.lora_B", "decoder.layers.3.self_attention.linear_proj.lora_B"));
  EXPECT_FALSE(GlobMatches("*.linear_proj.lora_B", "linear_proj.lora_B"));
  EXPECT_TRUE(GlobMatches("*", ""));
  EXPECT_TRUE(GlobMatches("a**b", "ab"));
  EXPECT_TRUE(GlobMatches("*ab*ab", "abababab"));
  EXPECT_FALSE(GlobMatches("*ab*ab", "ab"));
  EXPECT_TRUE(GlobMatches("layers.?.w", "layers.7.w"));
  EXPECT_FALSE(GlobMatches("layers.?.w", "layers.17.w"));
  EXPECT_FALSE(GlobMatches("layers.?", "layers."));
  EXPECT_FALSE(GlobMatches("", "a"));
  EXPECT_TRUE(GlobMatches("", ""));
  EXPECT_FALSE(GlobMatches("lora", "LoRA"));
  EXPECT_FALSE(GlobMatches("lora", "lora_A"));
}

TEST(TextTest, BracesAreAlternatives) {
  EXPECT_TRUE(GlobMatches("*.{q,k,v}_proj.*", "layers.0.k_proj.weight"));
  EXPECT_FALSE(GlobMatches("*.{q,k,v}_proj.*", "layers.0.o_proj.weight"));
  EXPECT_TRUE(GlobMatches("a{,b}c", "ac"));
  EXPECT_TRUE(GlobMatches("{x{1,2},y*}z", "x2z"));
  EXPECT_TRUE(GlobMatches("{x{1,2},y*}z", "y.anything.z"));
  EXPECT_FALSE(GlobMatches("{x{1,2},y*}z", "x3z"));
  EXPECT_TRUE(GlobMatches("{a,b}{c,d}", "bc"));
  EXPECT_FALSE(GlobMatches("{a,b}{c,d}", "ab"));
  EXPECT_TRUE(GlobMatches("{a}", "a"));
}

TEST(TextTest, LoneBracesStandForThemselves) {
  EXPECT_TRUE(GlobMatches("a{b", "a{b"));
  EXPECT_TRUE(GlobMatches("a}b", "a}b"));
  EXPECT_TRUE(GlobMatches("{{a,b}", "{b"));
}

// The naive recursion would need about 2^30 steps here.
TEST(TextTest, ManyStarsTakePolynomialTime) {
  std::string pattern;
  for (int i = 0; i < 30; ++i) pattern += "*a";
  EXPECT_FALSE(GlobMatches(pattern + "b", std::string(200, 'a')));
}

TEST(TextTest, ClosestFindsTypos) {
  const std::vector<std::string> choices = {"linear_attention", "self_attention", "mlp", "tp",
                                            "cp"};
  EXPECT_EQ(Closest("self_atention", choices), "self_attention");
  EXPECT_EQ(Closest("liner_attention", choices), "linear_attention");
  EXPECT_EQ(Closest("MLP", choices), "mlp");
  EXPECT_EQ(Closest("mpl", choices), "mlp");  // neighbours swapped
  EXPECT_EQ(Closest("tpp", choices), "tp");
  EXPECT_EQ(Closest("dp", choices), "tp");  // the first of equals
  EXPECT_EQ(Closest("optimizer", choices), "");
  EXPECT_EQ(Closest("x", {}), "");
}

// An escape sequence in a glob would colour the terminal of whoever reads the message.
TEST(TextTest, ControlCharactersAreWrittenOut) {
  EXPECT_EQ(Printable("a\x1b[31mb\x7f\r"), "a\\x1b[31mb\\x7f\\x0d");
  EXPECT_EQ(Printable("two\nlines\tand \u03b3"), "two\nlines\tand \u03b3");
}

}  // namespace
}  // namespace sumonce

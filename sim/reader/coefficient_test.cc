#include "sim/reader/coefficient.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sumonce {
namespace {

const Mesh& TestMesh() {
  static const Mesh mesh = *Mesh::Create({.tp = 4, .dp = 3});
  return mesh;
}

TEST(ParseCoefficient, IsTheInverseOfDescribe) {
  for (const char* text : {"1", "tp", "1/tp", "2*tp^2/dp", "1/dp", "3"}) {
    const auto scale = ParseCoefficient(text, TestMesh());
    ASSERT_TRUE(scale.ok()) << text << ": " << scale.status();
    EXPECT_EQ(scale->Describe(TestMesh()), text);
  }
}

TEST(ParseCoefficient, MultipliesFromLeftToRight) {
  EXPECT_DOUBLE_EQ(ParseCoefficient("2*tp/dp*tp", TestMesh())->Evaluate(TestMesh()), 2 * 16.0 / 3);
  EXPECT_EQ(*ParseCoefficient("0.5", TestMesh()), Scale::Rational(1, 2));
  EXPECT_EQ(*ParseCoefficient("tp^0", TestMesh()), Scale());
  EXPECT_TRUE(ParseCoefficient("0", TestMesh())->IsZero());
}

TEST(ParseCoefficient, RefusesOtherTextAndNamesTheRest) {
  for (const char* text : {"", "*", "tp*", "1//tp", "tq", "tp^", "tp^9", "tp^12", "tp tp", "TP",
                           "-1", "1/0", "1.", ".5", "1234567890", "tp+1"}) {
    EXPECT_EQ(ParseCoefficient(text, TestMesh()).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
  EXPECT_EQ(ParseCoefficient("2*tq/dp", TestMesh()).status().message(),
            "cannot be read from \"tq/dp\" on");
}

}  // namespace
}  // namespace sumonce

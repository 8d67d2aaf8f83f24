#include "spmd/scale.h"

#include "gtest/gtest.h"

namespace sumonce {
namespace {

TEST(Scale, RationalsAreReducedWithAPositiveDenominator) {
  EXPECT_EQ(Scale::Rational(6, 4), Scale::Rational(3, 2));
  EXPECT_EQ(Scale::Rational(1, -2), Scale::Rational(-1, 2));
  EXPECT_TRUE(Scale::Rational(5, 5).IsOne());
  EXPECT_TRUE(Scale::Rational(0, 7).IsZero());
}

TEST(Scale, ProductsAndInversesAreFormal) {
  const Scale n = Scale::SizeOfAxis(0), m = Scale::SizeOfAxis(1);
  EXPECT_EQ(n * m, m * n);
  EXPECT_FALSE(n == m);  // even if both sizes are 2
  EXPECT_TRUE((n * n.Inverse()).IsOne());
  const Scale scale = Scale::Rational(3, 2) * n * n * m.Inverse();
  EXPECT_EQ(scale.exponent(0), 2);
  EXPECT_EQ(scale.exponent(1), -1);
  EXPECT_TRUE((scale * scale.Inverse()).IsOne());
}

TEST(Scale, IsEvaluatedAndNamedOnAMesh) {
  const Mesh mesh = *Mesh::Create({.tp = 2, .cp = 3, .dp = 5});
  const Scale tp = Scale::SizeOfGroup(mesh.GroupOf(Axis::kTp));
  const Scale cp = Scale::SizeOfGroup(mesh.GroupOf(Axis::kCp));
  EXPECT_EQ((tp * tp * cp.Inverse()).Evaluate(mesh), 4.0 / 3.0);
  EXPECT_EQ((tp * tp * cp.Inverse()).Describe(mesh), "tp^2/cp");
  EXPECT_EQ((Scale::Rational(2) * tp.Inverse()).Describe(mesh), "2/tp");
  EXPECT_EQ(tp.Inverse().Describe(mesh), "1/tp");
  EXPECT_EQ(Scale().Describe(mesh), "1");
}

// With ep inside tp, tp is a product of two atomic axes: its name stands for both, and half of it
// has another.
TEST(Scale, NamesAnAxisOfSeveralFactors) {
  const Mesh mesh = *Mesh::Create({.tp = 4, .ep = 2, .etp = 1});
  ASSERT_EQ(mesh.GroupOf(Axis::kTp).atomic.size(), 2u);
  EXPECT_EQ(Scale::SizeOfGroup(mesh.GroupOf(Axis::kTp)).Describe(mesh), "tp");
  EXPECT_EQ(Scale::SizeOfGroup(mesh.GroupOf(Axis::kTp)).Evaluate(mesh), 4);
  EXPECT_EQ(Scale::SizeOfGroup(mesh.GroupOf(Axis::kEp)).Describe(mesh), "ep");
}

}  // namespace
}  // namespace sumonce

#include "base/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/digest.h"
#include "base/random.h"

namespace sumonce {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Error in units of the last place of the (long double) truth.
double UlpError(double value, long double truth) {
  const double rounded = static_cast<double>(truth);
  const double ulp = std::nextafter(std::fabs(rounded), kInfinity) - std::fabs(rounded);
  return static_cast<double>(std::fabs(value - truth) / ulp);
}

std::vector<double> Arguments(double low, double high) {
  std::vector<double> arguments;
  const RandomStream stream(1, "arguments");
  for (uint64_t i = 0; i < 2000; ++i) arguments.push_back(low + (high - low) * stream.Uniform(i));
  return arguments;
}

TEST(MathTest, ElementaryFunctionsAreWithinOneUlp) {
  for (const double x : Arguments(-700, 700)) {
    EXPECT_LE(UlpError(Exp(x), std::exp(static_cast<long double>(x))), 1.0) << x;
    EXPECT_LE(UlpError(Sin(x), std::sin(static_cast<long double>(x))), 1.0) << x;
    EXPECT_LE(UlpError(Cos(x), std::cos(static_cast<long double>(x))), 1.0) << x;
    EXPECT_LE(UlpError(Erf(x / 100), std::erf(static_cast<long double>(x / 100))), 1.0) << x;
    EXPECT_LE(UlpError(Tanh(x / 30), std::tanh(static_cast<long double>(x / 30))), 1.0) << x;
    const double positive = std::fabs(x) + 1e-3;
    EXPECT_LE(UlpError(Log(positive), std::log(static_cast<long double>(positive))), 1.0) << x;
    EXPECT_LE(UlpError(Log1p(positive), std::log1p(static_cast<long double>(positive))), 1.0) << x;
    EXPECT_LE(
        UlpError(Pow(positive, -0.375), std::pow(static_cast<long double>(positive), -0.375L)), 1.0)
        << x;
  }
}

// The promise of the header: these bits on every CPU and compiler. A mix with SLEEF's FMA family or
// libm differs.
TEST(MathTest, BitsArePinned) {
  Digest digest;
  for (const double x : Arguments(-30, 30)) {
    const std::vector<double> values = {Exp(x),
                                        Log(std::fabs(x)),
                                        Log1p(std::fabs(x)),
                                        Sin(x),
                                        Cos(x),
                                        Pow(std::fabs(x), 0.3),
                                        Sigmoid(x),
                                        Silu(x),
                                        SiluGrad(x),
                                        Softplus(x)};
    digest.Add(values);
  }
  EXPECT_EQ(digest.Hex(), "b1f1f4bbd0419f28f6ea4438ea4fe180");
}

TEST(MathTest, SigmoidHasNoOverflowAtEitherEnd) {
  EXPECT_EQ(Sigmoid(0), 0.5);
  EXPECT_EQ(Sigmoid(kInfinity), 1.0);
  EXPECT_EQ(Sigmoid(-kInfinity), 0.0);
  EXPECT_EQ(Sigmoid(1e4), 1.0);
  EXPECT_EQ(Sigmoid(-1e4), 0.0);
  EXPECT_NEAR(Sigmoid(-700) / std::exp(-700.0), 1.0, 1e-15);  // keeps its relative accuracy
  EXPECT_TRUE(std::isnan(Sigmoid(std::nan(""))));
  for (const double x : Arguments(-40, 40)) EXPECT_NEAR(Sigmoid(x) + Sigmoid(-x), 1.0, 3e-16);
}

TEST(MathTest, SiluGradIsTheDerivativeOfSilu) {
  constexpr double kStep = 1e-4;
  for (const double x : Arguments(-20, 20)) {
    const double difference = (Silu(x + kStep) - Silu(x - kStep)) / (2 * kStep);
    EXPECT_NEAR(SiluGrad(x), difference, 1e-8) << x;
  }
  EXPECT_EQ(SiluGrad(0), 0.5);
}

TEST(MathTest, GeluGradsAreTheDerivatives) {
  constexpr double kStep = 1e-4;
  Digest digest;
  for (const double x : Arguments(-8, 8)) {
    EXPECT_NEAR(GeluGrad(x), (Gelu(x + kStep) - Gelu(x - kStep)) / (2 * kStep), 1e-7) << x;
    EXPECT_NEAR(GeluTanhGrad(x), (GeluTanh(x + kStep) - GeluTanh(x - kStep)) / (2 * kStep), 1e-7)
        << x;
    EXPECT_NEAR(Gelu(x), GeluTanh(x), 1e-3) << x;
    digest.Add(std::vector<double>{Gelu(x), GeluGrad(x), GeluTanh(x), GeluTanhGrad(x)});
  }
  EXPECT_EQ(digest.Hex(),
            "d316c9bbdb7cb37c7879ede8f80081fd");  // the same bits on every CPU and compiler
}

TEST(MathTest, SoftplusIsTheIdentityAboveTwenty) {
  EXPECT_EQ(Softplus(std::nextafter(20.0, 21.0)), std::nextafter(20.0, 21.0));
  EXPECT_GT(Softplus(20.0), 20.0);
  EXPECT_NEAR(Softplus(0), std::log(2.0), 1e-16);
  EXPECT_EQ(Softplus(-40), std::exp(-40.0));  // log1p, not log: no cancellation
  EXPECT_EQ(Softplus(-1e4), 0.0);
}

}  // namespace
}  // namespace sumonce

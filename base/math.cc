#include "base/math.h"

#include <sleef.h>

#include <cmath>

namespace sumonce {
namespace {

constexpr double kRootHalf = 0.70710678118654752440;
constexpr double kGeluSlope = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

}  // namespace

// Only the `cinz` family (no FMA, the same bits on any CPU); its FMA twin `finz` gives other bits.
double Exp(double x) { return Sleef_cinz_expd1_u10purec(x); }
double Log(double x) { return Sleef_cinz_logd1_u10purec(x); }
double Log1p(double x) { return Sleef_cinz_log1pd1_u10purec(x); }
double Sin(double x) { return Sleef_cinz_sind1_u10purec(x); }
double Cos(double x) { return Sleef_cinz_cosd1_u10purec(x); }
double Pow(double x, double y) { return Sleef_cinz_powd1_u10purec(x, y); }

double Erf(double x) { return Sleef_cinz_erfd1_u10purec(x); }
double Tanh(double x) { return Sleef_cinz_tanhd1_u10purec(x); }

double Sigmoid(double x) {
  const double decay = Exp(-std::fabs(x));  // in [0, 1] at either end
  return (x >= 0 ? 1.0 : decay) / (1.0 + decay);
}

double Silu(double x) { return x * Sigmoid(x); }

double SiluGrad(double x) {
  const double s = Sigmoid(x);
  return s * (1.0 + x * (1.0 - s));
}

double Gelu(double x) { return 0.5 * x * (1.0 + Erf(x * kRootHalf)); }

double GeluGrad(double x) {
  constexpr double kRootTwoPiInverse = 0.39894228040143267794;
  return 0.5 * (1.0 + Erf(x * kRootHalf)) + x * kRootTwoPiInverse * Exp(-0.5 * x * x);
}

double GeluTanh(double x) {
  return 0.5 * x * (1.0 + Tanh(kGeluSlope * (x + kGeluCubic * x * x * x)));
}

double GeluTanhGrad(double x) {
  const double t = Tanh(kGeluSlope * (x + kGeluCubic * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * kGeluSlope * (1.0 + 3.0 * kGeluCubic * x * x);
}

double Softplus(double x) { return x > 20.0 ? x : Log1p(Exp(x)); }

}  // namespace sumonce

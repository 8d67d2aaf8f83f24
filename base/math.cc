#include "base/math.h"

#include <sleef.h>

#include <cmath>

namespace sumonce {

// Only the `cinz` family (no FMA, the same bits on any CPU); its FMA twin `finz` gives other bits.
double Exp(double x) { return Sleef_cinz_expd1_u10purec(x); }
double Log(double x) { return Sleef_cinz_logd1_u10purec(x); }
double Log1p(double x) { return Sleef_cinz_log1pd1_u10purec(x); }
double Sin(double x) { return Sleef_cinz_sind1_u10purec(x); }
double Cos(double x) { return Sleef_cinz_cosd1_u10purec(x); }
double Pow(double x, double y) { return Sleef_cinz_powd1_u10purec(x, y); }

double Sigmoid(double x) {
  const double decay = Exp(-std::fabs(x));  // in [0, 1] at either end
  return (x >= 0 ? 1.0 : decay) / (1.0 + decay);
}

double Silu(double x) { return x * Sigmoid(x); }

double SiluGrad(double x) {
  const double s = Sigmoid(x);
  return s * (1.0 + x * (1.0 - s));
}

double Softplus(double x) { return x > 20.0 ? x : Log1p(Exp(x)); }

}  // namespace sumonce

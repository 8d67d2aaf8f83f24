// Elementary functions with the same bits on every CPU: SLEEF's `cinz` family, never libm, whose
// variants differ by CPU and version (docs/DETERMINISM.md). All of float64.
#pragma once

namespace sumonce {

double Exp(double x);
double Log(double x);
double Log1p(double x);
double Sin(double x);
double Cos(double x);
double Pow(double x, double y);

double Sigmoid(double x);   // 1 / (1 + e^-x), without overflow at either end
double Silu(double x);      // x * Sigmoid(x)
double SiluGrad(double x);  // d Silu / dx
double Softplus(
    double x);  // log(1 + e^x); the identity above 20, as in torch and flash-linear-attention

}  // namespace sumonce

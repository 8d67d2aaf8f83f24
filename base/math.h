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
double Erf(double x);
double Tanh(double x);

double Sigmoid(double x);   // 1 / (1 + e^-x), without overflow at either end
double Silu(double x);      // x * Sigmoid(x)
double SiluGrad(double x);  // d Silu / dx
double Gelu(double x);      // x Phi(x), Phi the normal distribution's, as torch's gelu
double GeluGrad(double x);
// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as torch's gelu(approximate="tanh")
double GeluTanh(double x);
double GeluTanhGrad(double x);
double Softplus(
    double x);  // log(1 + e^x); the identity above 20, as in torch and flash-linear-attention

}  // namespace sumonce

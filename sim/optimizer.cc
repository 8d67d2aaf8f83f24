#include "sim/optimizer.h"

#include <cmath>

namespace sumonce {
namespace {

// base^exponent by repeated multiplication: the same bits everywhere.
double Power(double base, int exponent) {
  double power = 1;
  for (int i = 0; i < exponent; ++i) power *= base;
  return power;
}

}  // namespace

void AdamW::Start(std::deque<Param>& params) {
  if (!precision_.bf16) return;
  for (Param& param : params) Keep(param, param.weight.Clone());
}

void AdamW::Step(std::deque<Param>& params) {
  ++steps_;
  for (Param& param : params) {
    if (!param.requires_grad || param.main_grad.empty()) continue;
    Moments& moments = moments_[param.name];
    if (moments.first.empty()) moments = {Tensor(param.weight.dims()), Tensor(param.weight.dims())};
    Update(param, moments);
  }
}

void AdamW::Update(Param& param, Moments& moments) {
  const double bias1 = 1 - Power(config_.beta1, steps_);
  const double bias2 = 1 - Power(config_.beta2, steps_);
  const double decay = param.weight.dims().size() > 1 ? config_.lr * config_.weight_decay : 0.0;
  Tensor weight = main_weight(param).Clone();
  for (int64_t i = 0; i < weight.count(); ++i) {
    const double grad = param.main_grad.data()[i];
    double& m = moments.first.data()[i];
    double& v = moments.second.data()[i];
    m = config_.beta1 * m + (1 - config_.beta1) * grad;
    v = config_.beta2 * v + (1 - config_.beta2) * grad * grad;
    double& w = weight.data()[i];
    w -= decay * w;
    w -= config_.lr * (m / bias1) / (std::sqrt(v / bias2) + config_.eps);
    m = RoundedTo(precision_.main_weight_dtype(), m);
    v = RoundedTo(precision_.main_weight_dtype(), v);
  }
  Keep(param, weight);
}

void AdamW::Keep(Param& param, Tensor weight) {
  if (!precision_.bf16) {
    param.weight = weight;
    return;
  }
  RoundInto(precision_.main_weight_dtype(), weight);
  main_weights_[param.name] = weight;
  param.weight = weight.Clone();
  RoundInto(precision_.weight_dtype(), param.weight);
}

const Tensor& AdamW::main_weight(const Param& param) const {
  const auto kept = main_weights_.find(param.name);
  return kept == main_weights_.end() ? param.weight : kept->second;
}

}  // namespace sumonce

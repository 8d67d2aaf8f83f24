#include "sim/optimizer.h"

#include <gtest/gtest.h>

#include "tests/golden.h"

namespace sumonce {
namespace {

using testing::AllClose;
using testing::Golden;

// Of three steps' tensors one behind the other, that of one step.
Tensor OfStep(const Golden& golden, const std::string& name, const Dims& dims, int step) {
  const int64_t count = Count(dims);
  const Tensor all = golden.Expected(name, {Plain(Dim::kIn, 3 * count)});
  const double* begin = all.data() + step * count;
  return Tensor(dims, std::vector<double>(begin, begin + count));
}

// Three steps of torch.optim.AdamW: a matrix with weight decay 0.1 and a vector, which
// Megatron-Core does not decay.
TEST(AdamWGolden, EqualsTorch) {
  const Golden golden("adamw_3steps");
  std::deque<Param> params(2);
  const char* names[] = {"matrix", "vector"};
  for (int p = 0; p < 2; ++p) {
    const std::string name = std::string("param.") + names[p];
    const std::vector<int64_t>& shape = golden.Shape(name);
    Dims dims = {Plain(Dim::kOut, shape[0])};
    if (shape.size() > 1) dims.push_back(Plain(Dim::kIn, shape[1]));
    params[p].name = names[p];
    params[p].weight = golden.Get(name, dims);
  }
  AdamW optimizer({.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1});
  for (int step = 0; step < 3; ++step) {
    for (Param& param : params)
      param.main_grad = OfStep(golden, "in.grads." + param.name, param.weight.dims(), step);
    optimizer.Step(params);
    for (const Param& param : params) {
      const auto expected = [&](const std::string& what) {
        return OfStep(golden, "out." + what + "." + param.name, param.weight.dims(), step);
      };
      const AdamW::Moments& moments = optimizer.moments().at(param.name);
      EXPECT_TRUE(AllClose(param.weight, expected("param"), 1e-15)) << param.name << " " << step;
      EXPECT_TRUE(AllClose(moments.first, expected("exp_avg"), 1e-15)) << param.name << " " << step;
      EXPECT_TRUE(AllClose(moments.second, expected("exp_avg_sq"), 1e-15))
          << param.name << " " << step;
    }
  }
}

std::deque<Param> OneParam(const std::string& name, double weight, double grad) {
  std::deque<Param> params(1);
  params[0].name = name;
  params[0].weight = Tensor({Plain(Dim::kOut, 1)}, {weight});
  params[0].main_grad = Tensor({Plain(Dim::kOut, 1)}, {grad});
  return params;
}

// bf16 numbers behind 1 are 2^-7 apart, so weights of it never leave 1 by steps of 2^-10. Main
// weights of float32 keep each step, and the model's weight follows once they are past half way.
// With betas and eps 0 a step is lr exactly.
TEST(AdamWMixedPrecision, MainWeightsKeepWhatModelWeightsCannotHold) {
  AdamW optimizer({.lr = 0x1p-10, .beta1 = 0, .beta2 = 0, .eps = 0}, {.bf16 = true});
  std::deque<Param> params = OneParam("w", 1.0, -2.0);
  optimizer.Start(params);
  for (const double expected : {1.0, 1.0, 1.0, 1.0 /* a tie */, 1 + 0x1p-7, 1 + 0x1p-7}) {
    const double before = optimizer.main_weight(params[0]).data()[0];
    optimizer.Step(params);
    EXPECT_EQ(optimizer.main_weight(params[0]).data()[0], before + 0x1p-10);
    EXPECT_EQ(params[0].weight.data()[0], expected) << "from " << before;
  }
}

// Start values are rounded: main weights to float32, the model's from those to bf16, ties to even.
TEST(AdamWMixedPrecision, StartsFromRoundedWeights) {
  AdamW optimizer({}, {.bf16 = true});
  std::deque<Param> params = OneParam("w", 1 + 0x1p-8 + 0x1p-30, 0);  // a tie but for 2^-30
  optimizer.Start(params);
  EXPECT_EQ(optimizer.main_weight(params[0]).data()[0], 1 + 0x1p-8);
  EXPECT_EQ(params[0].weight.data()[0], 1.0);
  AdamW exact({});
  params = OneParam("w", 1 + 0x1p-30, 0);
  exact.Start(params);
  EXPECT_EQ(params[0].weight.data()[0], 1 + 0x1p-30);
}

// What is kept in float32 is torch's float64 result but for the roundings of what is kept, and is
// float32; the model's weights are that in bf16.
TEST(AdamWMixedPrecision, MainWeightsEqualTorchButForTheirRoundings) {
  const Golden golden("adamw_3steps");
  std::deque<Param> params(1);
  Param& param = params[0];
  param.name = "matrix";
  const std::vector<int64_t>& shape = golden.Shape("param.matrix");
  const Dims dims = {Plain(Dim::kOut, shape[0]), Plain(Dim::kIn, shape[1])};
  param.weight = golden.Get("param.matrix", dims);
  AdamW optimizer({.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
                  {.bf16 = true});
  optimizer.Start(params);
  for (int step = 0; step < 3; ++step) {
    param.main_grad = OfStep(golden, "in.grads.matrix", dims, step);
    optimizer.Step(params);
    const Tensor& main = optimizer.main_weight(param);
    EXPECT_TRUE(AllClose(main, OfStep(golden, "out.param.matrix", dims, step), 3e-7)) << step;
    for (int64_t i = 0; i < main.count(); ++i) {
      const double value = main.data()[i];
      EXPECT_EQ(value, static_cast<float>(value));
      EXPECT_EQ(param.weight.data()[i], BFloat16::FromFloat(static_cast<float>(value)).ToFloat());
    }
  }
}

}  // namespace
}  // namespace sumonce

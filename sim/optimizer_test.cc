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
  const Tensor all = golden.Get(name, {Plain(Dim::kIn, 3 * count)});
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

}  // namespace
}  // namespace sumonce

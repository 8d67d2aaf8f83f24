#include "sim/optimizer.h"

#include <gtest/gtest.h>

#include "base/safetensors.h"

namespace sumonce {
namespace {

// Three steps of torch.optim.AdamW: a matrix with weight decay 0.1 and a vector, which
// Megatron-Core does not decay.
TEST(AdamW, EqualsTorch) {
  const auto golden = SafetensorsReader::Open(std::string(SUMONCE_TEST_DATA) +
                                              "/golden/adamw_3steps.f64.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status();
  std::deque<Param> params(2);
  const char* names[] = {"matrix", "vector"};
  for (int p = 0; p < 2; ++p) {
    const std::string name = std::string("param.") + names[p];
    const std::vector<int64_t> shape = golden->tensors().at(name).shape;
    Dims dims = {Plain(Dim::kOut, shape[0])};
    if (shape.size() > 1) dims.push_back(Plain(Dim::kIn, shape[1]));
    params[p].name = names[p];
    params[p].weight = Tensor(dims, *golden->Read(name));
    params[p].main_grad = Tensor(dims);
  }
  AdamW optimizer({.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1});
  for (int step = 0; step < 3; ++step) {
    for (Param& param : params) {
      const std::vector<double> grads = *golden->Read("in.grads." + param.name);
      std::copy_n(grads.begin() + step * param.weight.count(), param.weight.count(),
                  param.main_grad.data());
    }
    optimizer.Step(params);
    for (const Param& param : params) {
      const std::vector<double> expected = *golden->Read("out.param." + param.name);
      for (int64_t i = 0; i < param.weight.count(); ++i) {
        EXPECT_NEAR(param.weight.data()[i], expected[step * param.weight.count() + i], 1e-15)
            << param.name << " step " << step << " element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace sumonce

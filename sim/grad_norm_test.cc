// Norm and clipping against torch's clip_grad_norm_, and which copies count.
#include "sim/grad_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/safetensors.h"

namespace sumonce {
namespace {

// tests/data/golden/README.md "clip_global_norm": three tensors, a threshold below and above.
TEST(GradNorm, NormAndClippedGradientsEqualTorch) {
  const Mesh mesh = *Mesh::Create({});
  for (const char* file : {"active", "inactive"}) {
    const auto golden = SafetensorsReader::Open(
        std::string(SUMONCE_TEST_DATA) + "/golden/clip_global_norm_" + file + ".f64.safetensors");
    ASSERT_TRUE(golden.ok()) << golden.status();
    std::deque<Param> params(3);
    const char* names[] = {"a", "b", "c"};
    for (int p = 0; p < 3; ++p) {
      std::vector<double> grad = *golden->Read(std::string("in.grad.") + names[p]);
      const auto count = static_cast<int64_t>(grad.size());
      params[p].main_grad = Tensor({Plain(Dim::kOut, count)}, std::move(grad));
    }
    const OptimizerConfig optimizer{.clip_grad = (*golden->Read("in.max_norm"))[0]};
    const auto norm = ComputeGradNorm(optimizer, mesh, 0, GroupComms(), params);
    ASSERT_TRUE(norm.ok()) << norm.status();
    const double expected = (*golden->Read("out.norm"))[0];
    EXPECT_NEAR(norm->norm, expected, 1e-15 * expected) << file;
    ScaleGradients(norm->clip_factor, params);
    for (int p = 0; p < 3; ++p) {
      const std::vector<double> clipped = *golden->Read(std::string("out.grad.") + names[p]);
      for (size_t i = 0; i < clipped.size(); ++i)
        EXPECT_NEAR(params[p].main_grad.data()[i], clipped[i], 1e-15) << file << " " << names[p];
    }
  }
}

// Megatron-Core, optimizer.py: not shared, and cut over tp or on tp rank 0.
TEST(GradNorm, MarksSayWhoCounts) {
  EXPECT_TRUE(CountsInNorm({.tensor_model_parallel = true}, 3));
  EXPECT_TRUE(CountsInNorm({}, 0));
  EXPECT_FALSE(CountsInNorm({}, 1));
  EXPECT_FALSE(CountsInNorm({.tensor_model_parallel = true, .shared = true}, 0));
}

TEST(GradNorm, ZerosAndTheGreatestEntry) {
  const Mesh mesh = *Mesh::Create({});
  std::deque<Param> params(2);
  params[0].main_grad = Tensor({Plain(Dim::kOut, 3)}, {0, -4, 3});
  params[1].main_grad = Tensor({Plain(Dim::kOut, 2)}, {12, 0});
  params.emplace_back().requires_grad = false;
  const auto squares = ComputeGradNorm({.clip_grad = 26}, mesh, 0, GroupComms(), params);
  EXPECT_EQ(squares->norm, 13);
  EXPECT_EQ(squares->zeros, 2);
  EXPECT_EQ(squares->clip_factor, 1);  // never up
  const auto greatest =
      ComputeGradNorm({.clip_grad = 6, .norm_type = NormType::kInf}, mesh, 0, GroupComms(), params);
  EXPECT_EQ(greatest->norm, 12);
  EXPECT_EQ(greatest->clip_factor, 6 / (12 + 1e-6));
}

}  // namespace
}  // namespace sumonce

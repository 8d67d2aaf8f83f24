// Norm and clipping against torch's clip_grad_norm_, and which copies count.
#include "sim/grad_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/golden.h"

namespace sumonce {
namespace {

using testing::Golden;

// Three tensors, a threshold below the norm and one above.
TEST(GradNormGolden, NormAndClippedGradientsEqualTorch) {
  const Mesh mesh = *Mesh::Create({});
  for (const char* file : {"active", "inactive"}) {
    const Golden golden(std::string("clip_global_norm_") + file);
    const auto number = [&](const char* name) {
      return golden.Expected(name, {Plain(Dim::kOut, 1)}).values()[0];
    };
    std::deque<Param> params(3);
    const char* names[] = {"a", "b", "c"};
    for (int p = 0; p < 3; ++p) {
      const std::string name = std::string("in.grad.") + names[p];
      int64_t count = 1;
      for (const int64_t extent : golden.Shape(name)) count *= extent;
      params[p].main_grad = golden.Get(name, {Plain(Dim::kOut, count)});
    }
    const OptimizerConfig optimizer{.clip_grad = number("in.max_norm")};
    const auto norm = ComputeGradNorm(optimizer, {}, mesh, 0, GroupComms(), params);
    ASSERT_TRUE(norm.ok()) << norm.status();
    const double expected = number("out.norm");
    EXPECT_NEAR(norm->norm, expected, 1e-15 * expected) << file;
    ScaleGradients(norm->clip_factor, params);
    for (int p = 0; p < 3; ++p) {
      EXPECT_TRUE(golden.Matches(params[p].main_grad, std::string("out.grad.") + names[p],
                                 testing::kAsStored, 1e-15))
          << file;
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

// Megatron-Core, tensor_parallel/layers.py: the rank in tp, whatever the parameter; from 0.19 on
// the rank in etp of what is reduced with the experts.
TEST(GradNorm, CopiesOfExpertsCountOnTheFirstRankOfEtp) {
  const Mesh mesh = *Mesh::Create({.tp = 4, .dp = 2, .etp = 1});
  const Marks expert = {.allreduce = false};
  for (const int version : {12, 16, 18, 19}) {
    const FinalizePreset preset = *Finalizers().Find("megatron_core_0_" + std::to_string(version));
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      const int tp_rank = rank % 4;
      EXPECT_EQ(DuplicateRank({}, preset, mesh, rank), tp_rank);
      EXPECT_EQ(DuplicateRank(expert, preset, mesh, rank), version < 19 ? tp_rank : 0);
    }
  }
  EXPECT_TRUE(IsSummedApart(expert, mesh));
  EXPECT_FALSE(IsSummedApart({}, mesh));
  EXPECT_FALSE(IsSummedApart(expert, *Mesh::Create({.tp = 4, .dp = 2}))) << "etp is tp";
}

TEST(GradNorm, ZerosAndTheGreatestEntry) {
  const Mesh mesh = *Mesh::Create({});
  std::deque<Param> params(2);
  params[0].main_grad = Tensor({Plain(Dim::kOut, 3)}, {0, -4, 3});
  params[1].main_grad = Tensor({Plain(Dim::kOut, 2)}, {12, 0});
  params.emplace_back().requires_grad = false;
  const auto squares = ComputeGradNorm({.clip_grad = 26}, {}, mesh, 0, GroupComms(), params);
  EXPECT_EQ(squares->norm, 13);
  EXPECT_EQ(squares->zeros, 2);
  EXPECT_EQ(squares->clip_factor, 1);  // never up
  const auto greatest = ComputeGradNorm({.clip_grad = 6, .norm_type = NormType::kInf}, {}, mesh, 0,
                                        GroupComms(), params);
  EXPECT_EQ(greatest->norm, 12);
  EXPECT_EQ(greatest->clip_factor, 6 / (12 + 1e-6));
}

}  // namespace
}  // namespace sumonce

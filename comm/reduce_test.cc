// Every kernel against the plain loop, to the bit: vectors, their tails and the rounding of
// bfloat16 must not show.
#include "comm/reduce.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/conformance/cases.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

constexpr int kRankCounts[] = {1, 2, 3, 4, 8, 17};
// Around the vectors of 16, 32 and 64 bytes, and around four of them.
constexpr int64_t kElementCounts[] = {0,  1,  2,  3,  7,  8,  9,   15, 16,
                                      17, 31, 33, 63, 64, 65, 127, 257};

template <typename T>
T FromDouble(double value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16::FromFloat(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// What cancels, overflows, is tiny, ties in bfloat16 or is not finite; another value per rank.
template <typename T>
T ValueOf(int rank, int64_t index) {
  if constexpr (std::is_integral_v<T>) {
    const uint64_t bits = static_cast<uint64_t>(rank * 131 + index + 1) * 0x9e3779b97f4a7c15u;
    return static_cast<T>(bits >> (64 - 8 * sizeof(T)));
  } else {
    static const double kValues[] = {1e16,   1.0,        -1e16, 0.1,        3e-5,  -7.25,
                                     1e8,    1.00390625, 3e38,  1e-40,      -0.0,  0.0,
                                     -1e-40, 3e38,       2.5,   1.01171875, -3e38, 0.00390625};
    if (index % 29 == 28) {
      static const double kOdd[] = {INFINITY, -INFINITY, 1.0, NAN, -1.0};
      return FromDouble<T>(kOdd[(rank + index / 29) % 5]);
    }
    return FromDouble<T>(kValues[(rank * 7 + index * 5) % 18]);
  }
}

template <typename T>
auto Wide(T value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return value.ToFloat();
  } else {
    return value;
  }
}

template <typename T>
T PlainReduction(ReduceOp op, int ranks, int64_t index) {
  auto total = Wide(ValueOf<T>(0, index));
  using Total = decltype(total);
  for (int rank = 1; rank < ranks; ++rank) {
    const Total value = Wide(ValueOf<T>(rank, index));
    if (op == ReduceOp::kMax) {
      total = value > total || value != value ? value : total;
    } else if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      total = static_cast<T>(static_cast<Unsigned>(total) + static_cast<Unsigned>(value));
    } else {
      total += value;
    }
  }
  if (op == ReduceOp::kAvg) total /= static_cast<Total>(ranks);
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16::FromFloat(total);
  } else {
    return total;
  }
}

// Equal bits; of two NaNs nothing more is asked.
template <typename T>
bool SameValue(T a, T b) {
  if constexpr (!std::is_integral_v<T>) {
    if (std::isnan(Wide(a)) && std::isnan(Wide(b))) return true;
  }
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

class EveryReduceKernel : public testing::TestWithParam<ReduceKernel> {
 protected:
  void SetUp() override {
    if (!HasReduceKernel(GetParam())) GTEST_SKIP() << "this CPU has no " << Name(GetParam());
    ForceReduceKernel(GetParam());
  }
  void TearDown() override { ForceReduceKernel(BestReduceKernel()); }

  // Buffers begin one element behind an aligned address, so that no vector is aligned, and end in a
  // guard that must stay.
  template <typename T>
  void Check(ReduceOp op, int ranks, int64_t count, bool in_place) {
    const T guard = FromDouble<T>(77.0);
    std::vector<std::vector<T>> inputs(ranks);
    std::vector<std::vector<T>> outputs(in_place ? ranks : 2, std::vector<T>(count + 2, guard));
    std::vector<const void*> in;
    std::vector<void*> out;
    for (int rank = 0; rank < ranks; ++rank) {
      inputs[rank].assign(count + 2, guard);
      for (int64_t i = 0; i < count; ++i) inputs[rank][i + 1] = ValueOf<T>(rank, i);
      in.push_back(inputs[rank].data() + 1);
    }
    std::vector<std::vector<T>>& targets = in_place ? inputs : outputs;
    for (std::vector<T>& target : targets) out.push_back(target.data() + 1);
    ReduceInRankOrder(kDType<T>, op, in, count, out);
    for (const std::vector<T>& target : targets) {
      ASSERT_TRUE(SameValue(target.front(), guard) && SameValue(target.back(), guard));
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_TRUE(SameValue(target[i + 1], PlainReduction<T>(op, ranks, i)))
            << Name(kDType<T>) << " " << Name(op) << " of " << ranks << " ranks, element " << i
            << " of " << count;
      }
    }
  }

  template <typename T>
  void CheckAll() {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) {
      if (op == ReduceOp::kAvg && std::is_integral_v<T>) continue;
      for (int ranks : kRankCounts) {
        for (int64_t count : kElementCounts) {
          Check<T>(op, ranks, count, true);
          Check<T>(op, ranks, count, false);
        }
      }
    }
  }
};

TEST_P(EveryReduceKernel, Float64) { CheckAll<double>(); }
TEST_P(EveryReduceKernel, Float32) { CheckAll<float>(); }
TEST_P(EveryReduceKernel, BFloat16) { CheckAll<BFloat16>(); }
TEST_P(EveryReduceKernel, Int64) { CheckAll<int64_t>(); }
TEST_P(EveryReduceKernel, Int32) { CheckAll<int32_t>(); }

// Every float32 whose upper half is one of all 65,536, with lower halves that round down, tie and
// round up.
TEST_P(EveryReduceKernel, RoundsToBFloat16AsItsDefinition) {
  std::vector<BFloat16> high(1 << 16);
  std::vector<BFloat16> low(1 << 16);
  for (uint32_t offset : {1u, 7u, 8u, 9u}) {  // in units of the last place
    for (uint32_t i = 0; i < high.size(); ++i) {
      high[i].bits = static_cast<uint16_t>(i);
      const uint32_t exponent = i >> 7 & 0xff;
      // A sixteenth of `high`'s last place, times the offset.
      low[i] =
          BFloat16::FromFloat(exponent == 0xff ? 0.0f
                                               : std::ldexp(static_cast<float>(offset),
                                                            static_cast<int>(exponent) - 127 - 11));
    }
    std::vector<BFloat16> out(high.size());
    const void* in[] = {high.data(), low.data()};
    void* to[] = {out.data()};
    ReduceInRankOrder(DType::kBFloat16, ReduceOp::kSum, in, static_cast<int64_t>(high.size()), to);
    for (uint32_t i = 0; i < high.size(); ++i) {
      const BFloat16 expected = BFloat16::FromFloat(high[i].ToFloat() + low[i].ToFloat());
      ASSERT_TRUE(SameValue(out[i], expected)) << i << " + " << offset << "/16";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, EveryReduceKernel,
                         testing::Values(ReduceKernel::kBaseline, ReduceKernel::kAvx2,
                                         ReduceKernel::kAvx512),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(ReduceKernels, TheWidestThereIsIsUsed) {
  EXPECT_TRUE(HasReduceKernel(ReduceKernel::kBaseline));
  EXPECT_TRUE(HasReduceKernel(BestReduceKernel()));
  for (ReduceKernel kernel : {ReduceKernel::kAvx2, ReduceKernel::kAvx512}) {
    if (HasReduceKernel(kernel)) EXPECT_GE(BestReduceKernel(), kernel);
  }
}

TEST(ReduceKernelsDeathTest, RefusesWhatCannotBeReduced) {
  uint8_t byte = 1;
  const void* in[] = {&byte};
  void* out[] = {&byte};
  EXPECT_DEATH(ReduceInRankOrder(DType::kUint8, ReduceOp::kSum, in, 1, out),
               "no reduction of uint8");
}

}  // namespace
}  // namespace sumonce

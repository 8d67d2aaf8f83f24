// The blocked product with vectors that are plain arrays: the tile shapes of every instruction set,
// on any CPU.
#include "base/gemm_blocked.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"

namespace sumonce::internal {
namespace {

template <typename T, int kWidth_, int kRows_>
struct Lanes {
  using Scalar = T;
  struct Vector {
    T lane[kWidth_] = {};
  };
  static constexpr int kWidth = kWidth_, kRows = kRows_, kPackStep = 4;
  static Vector Zero() { return {}; }
  static Vector Broadcast(T x) {
    Vector v;
    std::fill_n(v.lane, kWidth, x);
    return v;
  }
  static Vector Load(const T* p) { return LoadFirst(p, kWidth); }
  static void Store(T* p, const Vector& v) { StoreFirst(p, kWidth, v); }
  static Vector LoadFirst(const T* p, int64_t count) {
    Vector v;
    std::copy_n(p, count, v.lane);
    return v;
  }
  static void StoreFirst(T* p, int64_t count, const Vector& v) { std::copy_n(v.lane, count, p); }
  static Vector MultiplyAdd(const Vector& a, const Vector& b, Vector c) {
    for (int i = 0; i < kWidth; ++i) c.lane[i] = std::fma(a.lane[i], b.lane[i], c.lane[i]);
    return c;
  }
  static void Transpose(const T* from, int64_t from_row, T* to, int64_t to_row) {
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) to[j * to_row + i] = from[i * from_row + j];
    }
  }
};

void RunPlainLoop(const GemmOperands<double>& operands) { ScalarGemmKernels()->float64(operands); }
void RunPlainLoop(const GemmOperands<float>& operands) { ScalarGemmKernels()->float32(operands); }

template <typename V>
class GemmBlockedTest : public testing::Test {};

using Instructions = testing::Types<Lanes<double, 4, 6>, Lanes<float, 8, 6>, Lanes<double, 8, 12>,
                                    Lanes<float, 16, 12>>;
TYPED_TEST_SUITE(GemmBlockedTest, Instructions);

// Vectors hold exactly the operands, so a sanitizer sees each access beyond them.
template <typename V>
void ExpectThePlainLoop(int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b) {
  using T = typename V::Scalar;
  const auto numbers = [](int64_t count, std::string_view name) {
    std::vector<T> values(count);
    for (int64_t i = 0; i < count; ++i) {
      values[i] = static_cast<T>(RandomStream(1, name).Uniform(i) - 0.5);
    }
    return values;
  };
  const std::vector<T> a = numbers(m * k, "a"), b = numbers(k * n, "b");
  std::vector<T> c = numbers(m * n, "c");
  std::vector<T> expected = c;
  for (const bool accumulate : {false, true}) {
    GemmOperands<T> operands = {m, n, k, a.data(), k, 1, b.data(), n, 1, c.data(), n, accumulate};
    if (transpose_a) operands.a_row = 1, operands.a_column = m;
    if (transpose_b) operands.b_row = 1, operands.b_column = k;
    Multiply<V>(operands);
    operands.c = expected.data();
    RunPlainLoop(operands);
    ASSERT_EQ(c, expected) << m << " x " << n << " x " << k << " " << transpose_a << transpose_b
                           << accumulate;
  }
}

TYPED_TEST(GemmBlockedTest, EqualsThePlainLoop) {
  const int64_t rows = TypeParam::kRows, columns = kTileVectors * TypeParam::kWidth;
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (int64_t m = 1; m <= rows + 1; ++m) {
        for (int64_t n = 1; n <= columns + 1; ++n) {
          ExpectThePlainLoop<TypeParam>(m, n, 6, transpose_a, transpose_b);
        }
      }
      ExpectThePlainLoop<TypeParam>(131, 4 * columns + 3, 16, transpose_a, transpose_b);  // packed
      ExpectThePlainLoop<TypeParam>(4 * rows + 1, 41, 523, transpose_a, transpose_b);
    }
  }
}

}  // namespace
}  // namespace sumonce::internal

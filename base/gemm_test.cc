#include "base/gemm.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"

namespace sumonce {
namespace {

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

// A row-major matrix with two spare columns per row, whose fill must survive.
template <typename T>
struct Matrix {
  int64_t rows, columns;
  std::vector<T> data;

  Matrix(int64_t rows, int64_t columns, std::string_view name)
      : rows(rows), columns(columns), data(rows * stride()) {
    const RandomStream stream(1, name);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<T>(stream.Normal(i));
  }
  int64_t stride() const { return columns + 2; }
};

struct Case {
  GemmShape shape;
  Transpose transpose_a, transpose_b;
  bool accumulate;

  std::string ToString() const {
    return "m=" + std::to_string(shape.m) + " n=" + std::to_string(shape.n) +
           " k=" + std::to_string(shape.k) + (transpose_a == Transpose::kYes ? " A^T" : " A") +
           (transpose_b == Transpose::kYes ? " B^T" : " B") + (accumulate ? " +=" : " =");
  }
};

// The definition: one chain of fused multiply-adds per element.
template <typename T>
void PlainLoop(const Case& c, const Matrix<T>& a, const Matrix<T>& b, Matrix<T>& out) {
  for (int64_t i = 0; i < c.shape.m; ++i) {
    for (int64_t j = 0; j < c.shape.n; ++j) {
      T sum = c.accumulate ? out.data[i * out.stride() + j] : T{0};
      for (int64_t p = 0; p < c.shape.k; ++p) {
        const bool ta = c.transpose_a == Transpose::kYes, tb = c.transpose_b == Transpose::kYes;
        sum = std::fma(a.data[ta ? p * a.stride() + i : i * a.stride() + p],
                       b.data[tb ? j * b.stride() + p : p * b.stride() + j], sum);
      }
      out.data[i * out.stride() + j] = sum;
    }
  }
}

template <typename T>
void ExpectSameBits(const Case& c) {
  const auto [m, n, k] = c.shape;
  const bool ta = c.transpose_a == Transpose::kYes, tb = c.transpose_b == Transpose::kYes;
  const Matrix<T> a(ta ? k : m, ta ? m : k, "a"), b(tb ? n : k, tb ? k : n, "b");
  Matrix<T> expected(m, n, "c");
  Matrix<T> actual = expected;
  PlainLoop(c, a, b, expected);
  Gemm(c.shape, c.transpose_a, a.data.data(), a.stride(), c.transpose_b, b.data.data(), b.stride(),
       actual.data.data(), actual.stride(), c.accumulate);
  for (size_t i = 0; i < actual.data.size(); ++i) {
    ASSERT_EQ(std::bit_cast<Bits<T>>(actual.data[i]), std::bit_cast<Bits<T>>(expected.data[i]))
        << c.ToString() << " row " << i / actual.stride() << " column " << i % actual.stride();
  }
}

template <typename T>
void ExpectSameBitsInEveryForm(GemmShape shape) {
  for (const Transpose a : {Transpose::kNo, Transpose::kYes}) {
    for (const Transpose b : {Transpose::kNo, Transpose::kYes}) {
      for (const bool accumulate : {false, true}) ExpectSameBits<T>({shape, a, b, accumulate});
    }
  }
}

class GemmTest : public testing::TestWithParam<GemmKernel> {
 protected:
  void SetUp() override {
    if (!HasGemmKernel(GetParam())) GTEST_SKIP() << "this CPU has no " << Name(GetParam());
    ForceGemmKernel(GetParam());
  }
  void TearDown() override { ForceGemmKernel(BestGemmKernel()); }
};

// Extents around every tile width and height of the kernels.
TEST_P(GemmTest, SmallShapesEqualThePlainLoop) {
  for (const int64_t m : {0, 1, 2, 3, 6, 7, 13}) {
    for (const int64_t n : {0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 66}) {
      for (const int64_t k : {0, 1, 2, 3, 8, 17}) {
        ExpectSameBitsInEveryForm<double>({m, n, k});
        ExpectSameBitsInEveryForm<float>({m, n, k});
      }
    }
  }
}

// Beyond the blocks of every dimension, so that sums are carried on from block to block.
TEST_P(GemmTest, LargeShapesEqualThePlainLoop) {
  for (const GemmShape shape :
       {GemmShape{5, 20, 1100}, {140, 130, 20}, {50, 130, 530}, {13, 2100, 20}}) {
    ExpectSameBitsInEveryForm<double>(shape);
    ExpectSameBitsInEveryForm<float>(shape);
  }
}

// `count` numbers that end where the next page may not be touched.
class GuardedNumbers {
 public:
  explicit GuardedNumbers(int64_t count) {
    void* pages =
        mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base_ = static_cast<char*>(pages);
    mprotect(base_ + kPage, kPage, PROT_NONE);
    end_ = reinterpret_cast<float*>(base_ + kPage);
    begin_ = end_ - count;
    std::fill(begin_, end_, 1.0f);
  }
  ~GuardedNumbers() { munmap(base_, 2 * kPage); }
  float* data() { return begin_; }

 private:
  static constexpr size_t kPage = 1 << 16;
  char* base_;
  float* begin_;
  float* end_;
};

TEST_P(GemmTest, NothingBeyondTheMatricesIsTouched) {
  for (const int64_t m : {1, 5, 7}) {
    for (const int64_t n : {1, 3, 9, 15, 17, 31, 33}) {
      for (const int64_t k : {1, 5, 17}) {
        GuardedNumbers a(m * k), b(k * n), c(m * n);
        for (const Transpose ta : {Transpose::kNo, Transpose::kYes}) {
          for (const Transpose tb : {Transpose::kNo, Transpose::kYes}) {
            Gemm<float>({m, n, k}, ta, a.data(), ta == Transpose::kYes ? m : k, tb, b.data(),
                        tb == Transpose::kYes ? k : n, c.data(), n, false);
            EXPECT_EQ(c.data()[m * n - 1], static_cast<float>(k));
          }
        }
      }
    }
  }
}

// Padding must not leak: 0 * inf would make a NaN of a neighbour.
TEST_P(GemmTest, SpecialValuesStayInTheirElements) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> a = {1, 0, -0.0, 2}, b = {inf, 3, -1, 4, 5, -0.0};
  std::vector<double> c(6);
  Gemm<double>({2, 3, 2}, Transpose::kNo, a.data(), 2, Transpose::kNo, b.data(), 3, c.data(), 3,
               false);
  EXPECT_EQ(c[0], inf);
  EXPECT_EQ(c[1], 3);
  EXPECT_EQ(c[2], -1);
  EXPECT_TRUE(std::isnan(c[3]));
  EXPECT_EQ(c[4], 10);
  EXPECT_FALSE(std::signbit(c[5]));  // the chain starts from +0
}

TEST_P(GemmTest, BadArgumentsAreFailedChecks) {
  double x[4] = {};
  const auto no = Transpose::kNo;
  EXPECT_DEATH(Gemm<double>({-1, 2, 2}, no, x, 2, no, x, 2, x, 2, false), "-1 x 2 x 2");
  EXPECT_DEATH(Gemm<double>({2, 2, 2}, no, x, 1, no, x, 2, x, 2, false), "A has 2 columns");
  EXPECT_DEATH(Gemm<double>({2, 2, 2}, no, x, 2, no, x, 1, x, 2, false), "B has 2 columns");
  EXPECT_DEATH(Gemm<double>({2, 2, 2}, no, x, 2, no, x, 2, x, 1, false), "C has 2 columns");
}

INSTANTIATE_TEST_SUITE_P(Kernels, GemmTest,
                         testing::Values(GemmKernel::kScalar, GemmKernel::kAvx2,
                                         GemmKernel::kAvx512),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(GemmDispatchTest, ForcingAnAbsentKernelIsAFailedCheck) {
  if (HasGemmKernel(GemmKernel::kAvx512)) GTEST_SKIP() << "this CPU has all kernels";
  EXPECT_DEATH(ForceGemmKernel(GemmKernel::kAvx512), "avx512 is not available here");
}

}  // namespace
}  // namespace sumonce

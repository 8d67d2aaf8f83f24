// Floating-point operations per second of the fixed-order product, per kernel, type and shape; y =
// x W^T as in a layer; beside it the plain loop, which every kernel equals bit by bit, and oneDNN
// where it is installed (one thread: OMP_NUM_THREADS=1). Compare lines of one run:
// OMP_NUM_THREADS=1 sumonce_gemm_bench --benchmark_filter=float32
#include <benchmark/benchmark.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/gemm.h"
#include "base/random.h"
#include "bench/dnnl_peer.h"

namespace sumonce {
namespace {

template <typename T>
std::vector<T> Numbers(int64_t count, std::string_view name) {
  std::vector<T> numbers(count);
  const RandomStream stream(1, name);
  for (int64_t i = 0; i < count; ++i) numbers[i] = static_cast<T>(stream.Uniform(i) - 0.5);
  return numbers;
}

template <typename T>
void Product(benchmark::State& state, GemmKernel kernel, GemmShape shape, Transpose transpose_b) {
  const auto [m, n, k] = shape;
  const std::vector<T> a = Numbers<T>(m * k, "a"), b = Numbers<T>(k * n, "b");
  std::vector<T> c(m * n);
  ForceGemmKernel(kernel);
  for (auto _ : state) {
    Gemm<T>(shape, Transpose::kNo, a.data(), k, transpose_b, b.data(),
            transpose_b == Transpose::kYes ? k : n, c.data(), n, false);
    benchmark::DoNotOptimize(c.data());
    benchmark::ClobberMemory();
  }
  ForceGemmKernel(BestGemmKernel());
  state.counters["flop/s"] = benchmark::Counter(2.0 * static_cast<double>(m * n * k),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

// One FMA chain over ascending k per element, as it reads in a textbook.
template <typename T>
void Plain(benchmark::State& state, GemmShape shape) {
  const auto [m, n, k] = shape;
  const std::vector<T> a = Numbers<T>(m * k, "a"), b = Numbers<T>(k * n, "b");
  std::vector<T> c(m * n);
  for (auto _ : state) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        T sum = 0;
        for (int64_t p = 0; p < k; ++p) sum = std::fma(a[i * k + p], b[j * k + p], sum);
        c[i * n + j] = sum;
      }
    }
    benchmark::DoNotOptimize(c.data());
  }
  state.counters["flop/s"] = benchmark::Counter(2.0 * static_cast<double>(m * n * k),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void Dnnl(benchmark::State& state, GemmShape shape, bool transpose_b) {
  const auto [m, n, k] = shape;
  const std::vector<float> a = Numbers<float>(m * k, "a"), b = Numbers<float>(k * n, "b");
  std::vector<float> c(m * n);
  for (auto _ : state) {
    if (!DnnlSgemm(transpose_b, m, n, k, a.data(), b.data(), c.data()))
      state.SkipWithError("oneDNN refused");
    benchmark::DoNotOptimize(c.data());
  }
  state.counters["flop/s"] = benchmark::Counter(2.0 * static_cast<double>(m * n * k),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

constexpr GemmShape kShapes[] = {{4, 4, 4},       {16, 16, 16},     {64, 64, 64},   {64, 64, 8},
                                 {512, 1024, 8},  {512, 1024, 16},  {512, 8, 4096}, {512, 16, 4096},
                                 {256, 256, 256}, {512, 1024, 4096}};

std::string ShapeText(const GemmShape& shape) {
  return std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" + std::to_string(shape.k);
}

void RegisterPeers() {
  for (const GemmShape& shape : kShapes) {
    benchmark::RegisterBenchmark(("gemm/float32/plain/" + ShapeText(shape) + "/bt").c_str(),
                                 Plain<float>, shape);
    if (!HasDnnl()) continue;
    for (const bool transpose_b : {false, true}) {
      const std::string name =
          "gemm/float32/onednn/" + ShapeText(shape) + (transpose_b ? "/bt" : "");
      benchmark::RegisterBenchmark(name.c_str(), Dnnl, shape, transpose_b);
    }
  }
}

template <typename T>
void RegisterAll(const std::string& type) {
  for (const GemmKernel kernel : {GemmKernel::kScalar, GemmKernel::kAvx2, GemmKernel::kAvx512}) {
    if (!HasGemmKernel(kernel)) continue;
    for (const GemmShape& shape : kShapes) {
      for (const Transpose transpose_b : {Transpose::kNo, Transpose::kYes}) {
        const std::string name = "gemm/" + type + "/" + std::string(Name(kernel)) + "/" +
                                 ShapeText(shape) + (transpose_b == Transpose::kYes ? "/bt" : "");
        benchmark::RegisterBenchmark(name.c_str(), Product<T>, kernel, shape, transpose_b);
      }
    }
  }
}

}  // namespace
}  // namespace sumonce

int main(int argc, char** argv) {
  sumonce::RegisterAll<double>("float64");
  sumonce::RegisterAll<float>("float32");
  sumonce::RegisterPeers();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 4;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

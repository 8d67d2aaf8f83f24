// The kernel's arithmetic, compiled for the host, against comm/reduce.h: bit for bit, on numbers
// that are easy to get wrong.
#include "comm/nccl/ordered_sum.h"

#include <cstdint>
#include <vector>

#include "comm/conformance/cases.h"
#include "comm/nccl/fake/fake_cuda.h"
#include "comm/reduce.h"
#include "gtest/gtest.h"

namespace sumonce::nccl {
namespace {

// words: [ranks, count], the bits of the elements. The two reductions of all of them.
template <typename Word>
void ExpectSameReduction(DType dtype, const std::vector<Word>& words, int ranks) {
  const int64_t count = static_cast<int64_t>(words.size()) / ranks;
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) {
    if (op == ReduceOp::kAvg && (dtype == DType::kInt64 || dtype == DType::kInt32)) continue;
    std::vector<const void*> in;
    for (int rank = 0; rank < ranks; ++rank) in.push_back(words.data() + rank * count);
    std::vector<Word> expected(count);
    std::vector<Word> actual(count);
    void* const outputs[] = {expected.data()};
    ReduceInRankOrder(dtype, op, in, count, outputs);
    OrderedSumOnHost(dtype, op, words.data(), ranks, count, actual.data());
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(actual[i], expected[i]) << Name(dtype) << " " << Name(op) << " over " << ranks
                                        << " ranks, element " << i << ", first term " << words[i];
    }
  }
}

// All pairs of `values`, as two ranks; and each value first of five with the others behind it.
template <typename Word>
void ExpectSameOnAllPairs(DType dtype, const std::vector<Word>& values) {
  std::vector<Word> first;
  std::vector<Word> second;
  for (Word a : values) {
    for (Word b : values) {
      first.push_back(a);
      second.push_back(b);
    }
  }
  std::vector<Word> both = first;
  both.insert(both.end(), second.begin(), second.end());
  ExpectSameReduction(dtype, both, 2);
  std::vector<Word> five;
  for (size_t rank = 0; rank < 5; ++rank) {
    for (size_t i = 0; i < values.size(); ++i)
      five.push_back(values[(i * (rank + 1) + rank * rank) % values.size()]);
  }
  ExpectSameReduction(dtype, five, 5);
}

// Zeros, the smallest and largest denormals and normals, one and its neighbours, infinities.
template <typename Word>
std::vector<Word> SpecialValues(Word one, Word infinity, Word least_normal) {
  std::vector<Word> values = {0,
                              1,
                              2,
                              Word(least_normal - 1),
                              least_normal,
                              one,
                              Word(one + 1),
                              Word(one - 1),
                              Word(infinity - 1),
                              infinity};
  const Word sign = Word(Word{1} << (8 * sizeof(Word) - 1));
  const size_t positive = values.size();
  for (size_t i = 0; i < positive; ++i) values.push_back(values[i] | sign);
  return values;
}

TEST(OrderedSum, SpecialFloatsReduceAsOnTheHost) {
  ExpectSameOnAllPairs<uint32_t>(DType::kFloat32,
                                 SpecialValues<uint32_t>(0x3f800000, 0x7f800000, 0x00800000));
  ExpectSameOnAllPairs<uint64_t>(
      DType::kFloat64,
      SpecialValues<uint64_t>(0x3ff0000000000000, 0x7ff0000000000000, 0x0010000000000000));
  ExpectSameOnAllPairs<uint16_t>(DType::kBFloat16, SpecialValues<uint16_t>(0x3f80, 0x7f80, 0x0080));
}

// A NaN keeps the bits it came with, wherever among finite terms and infinities it stands.
TEST(OrderedSum, NanKeepsItsBits) {
  for (uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffabcdefu, 0x7fc12345u}) {
    for (uint32_t other : {0u, 0x80000000u, 0x3f800000u, 0x7f800000u, 0xff800000u, 1u}) {
      ExpectSameReduction<uint32_t>(DType::kFloat32, {nan, other, other}, 3);
      ExpectSameReduction<uint32_t>(DType::kFloat32, {other, nan, other}, 3);
      ExpectSameReduction<uint32_t>(DType::kFloat32, {other, other, nan}, 3);
      const uint64_t wide_nan = (uint64_t{nan} << 32) | 5;
      const uint64_t wide_other = uint64_t{other} << 32;
      ExpectSameReduction<uint64_t>(DType::kFloat64, {wide_nan, wide_other}, 2);
      ExpectSameReduction<uint64_t>(DType::kFloat64, {wide_other, wide_nan}, 2);
    }
  }
}

// Every bfloat16 with a spread of others, both ways round: 65536 × 64 pairs.
TEST(OrderedSum, EveryBFloat16) {
  for (uint32_t k = 0; k < 64; ++k) {
    const uint16_t other = static_cast<uint16_t>(k * 1021 + 7);
    const bool other_is_nan = (other & 0x7fff) > 0x7f80;
    std::vector<uint16_t> every;
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      // Of two NaNs the host takes either.
      const bool is_nan = (bits & 0x7fff) > 0x7f80;
      every.push_back(static_cast<uint16_t>(is_nan && other_is_nan ? 0 : bits));
    }
    std::vector<uint16_t> words = every;
    words.insert(words.end(), every.size(), other);
    ExpectSameReduction(DType::kBFloat16, words, 2);
    std::vector<uint16_t> turned(every.size(), other);
    turned.insert(turned.end(), every.begin(), every.end());
    ExpectSameReduction(DType::kBFloat16, turned, 2);
  }
}

// Sums in which the order shows, over every number of ranks up to eight and two larger ones.
TEST(OrderedSum, RandomBitsOfEveryDtype) {
  uint64_t state = 7;
  const auto next = [&state] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state;
  };
  const auto finite = [](uint64_t bits, uint64_t exponent) {
    return (bits & exponent) == exponent ? bits & ~exponent : bits;
  };
  for (int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 17, 64}) {
    std::vector<uint64_t> doubles, longs;
    std::vector<uint32_t> floats, ints;
    std::vector<uint16_t> halves;
    for (int i = 0; i < 1000 * ranks; ++i) {
      longs.push_back(next());
      doubles.push_back(finite(next(), 0x7ff0000000000000));
      ints.push_back(static_cast<uint32_t>(next() >> 32));
      floats.push_back(static_cast<uint32_t>(finite(next() >> 32, 0x7f800000)));
      halves.push_back(static_cast<uint16_t>(finite(next() >> 48, 0x7f80)));
    }
    ExpectSameReduction(DType::kFloat64, doubles, ranks);
    ExpectSameReduction(DType::kFloat32, floats, ranks);
    ExpectSameReduction(DType::kBFloat16, halves, ranks);
    ExpectSameReduction(DType::kInt64, longs, ranks);
    ExpectSameReduction(DType::kInt32, ints, ranks);
  }
}

}  // namespace
}  // namespace sumonce::nccl

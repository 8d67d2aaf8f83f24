// Internal to base/gemm_avx*.cc, each of which is compiled for its own instruction set: the blocked
// product over a vector type V. Everything is in an unnamed namespace, and the C++ library is kept
// out, so that the linker cannot give code for a newer CPU to the rest of the program.
//
// V has: Scalar, Vector, kWidth; kRows, the height of a tile; Zero(), Broadcast(x), Load(p),
// Store(p, v), and LoadFirst(p, count), StoreFirst(p, count, v), which touch only `count` elements;
// MultiplyAdd(a, b, c), which is fma(a, b, c) in each lane; kPackStep and Transpose(from, from_row,
// to, to_row), which writes a square of that many rows and columns transposed.
//
// The blocks over k go in ascending order and each continues from the sums in C, so an element's
// chain of operations is the plain loop's. The scheme of blocks and panels is that of Goto and van
// de Geijn (ACM TOMS 34(3), 2008).
#pragma once

#include "base/gemm_kernels.h"

namespace sumonce::internal {
namespace {

#define SUMONCE_INLINE inline __attribute__((always_inline))

template <int kIndex>
struct Index {
  static constexpr int value = kIndex;
};

// body(Index<0>) ... body(Index<kCount - 1>), written out: the sums of a tile must be registers, at
// any -O.
template <int kCount, typename Body>
SUMONCE_INLINE void Unroll(const Body& body) {
  if constexpr (kCount > 0) {
    Unroll<kCount - 1>(body);
    body(Index<kCount - 1>{});
  }
}

inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t RoundUp(int64_t count, int64_t step) { return (count + step - 1) / step * step; }

inline constexpr int kTileVectors = 2;  // width of a tile

template <typename V>
struct Sizes {
  using T = typename V::Scalar;
  static constexpr int64_t kTileColumns = kTileVectors * V::kWidth;
  static constexpr int64_t kBlockK = 2048 / sizeof(T);           // a panel of B fits the L1 cache
  static constexpr int64_t kBlockM = 128 / V::kRows * V::kRows;  // a block of A fits the L2 cache
  static constexpr int64_t kBlockN = 8192 / sizeof(T);           // a block of B fits the L3 cache
};

// One tile of C and the panels that it is made from.
template <typename T>
struct Tile {
  int64_t k;
  const T* a;
  int64_t a_row, a_column;
  const T* b;
  int64_t b_row;
  T* c;
  int64_t c_row;
  bool from_zero;  // else the sums start from C
  int64_t last;    // columns of the last vector, where it is not full
};

// kPackedA: a panel of A as PackA writes it, with its strides known here.
template <typename V, int kRows, int kVectors, bool kPartial, bool kPackedA>
void MultiplyTile(const Tile<typename V::Scalar>& tile) {
  using T = typename V::Scalar;
  using Vector = typename V::Vector;
  constexpr int kWidth = V::kWidth;
  const auto load = [&](const T* from, auto vector) __attribute__((always_inline)) {
    if constexpr (kPartial && vector.value == kVectors - 1) {
      return V::LoadFirst(from + vector.value * kWidth, tile.last);
    } else {
      return V::Load(from + vector.value * kWidth);
    }
  };
  const int64_t a_row = kPackedA ? 1 : tile.a_row;
  const int64_t a_column = kPackedA ? V::kRows : tile.a_column;
  Vector sum[kRows][kVectors];
  Unroll<kRows>([&](auto i) __attribute__((always_inline)) {
    Unroll<kVectors>([&](auto j) __attribute__((always_inline)) {
      sum[i.value][j.value] = tile.from_zero ? V::Zero() : load(tile.c + i.value * tile.c_row, j);
    });
  });
  const T* a = tile.a;
  const T* b = tile.b;
  for (int64_t p = 0; p < tile.k; ++p, a += a_column, b += tile.b_row) {
    Vector row[kVectors];
    Unroll<kVectors>([&](auto j) __attribute__((always_inline)) { row[j.value] = load(b, j); });
    Unroll<kRows>([&](auto i) __attribute__((always_inline)) {
      const Vector x = V::Broadcast(a[i.value * a_row]);
      Unroll<kVectors>([&](auto j) __attribute__((always_inline)) {
        sum[i.value][j.value] = V::MultiplyAdd(x, row[j.value], sum[i.value][j.value]);
      });
    });
  }
  Unroll<kRows>([&](auto i) __attribute__((always_inline)) {
    Unroll<kVectors>([&](auto j) __attribute__((always_inline)) {
      T* to = tile.c + i.value * tile.c_row + j.value * kWidth;
      if constexpr (kPartial && j.value == kVectors - 1) {
        V::StoreFirst(to, tile.last, sum[i.value][j.value]);
      } else {
        V::Store(to, sum[i.value][j.value]);
      }
    });
  });
}

// The rows that are left below full tiles, as tiles of 8, 4, 2 and 1: a tile of each height would
// be faster at odd extents, but there would be three times the code to compile.
template <typename V, int kVectors, bool kPartial, int kRows>
SUMONCE_INLINE void MultiplyRest(int64_t rows, Tile<typename V::Scalar> tile) {
  if constexpr (kRows > 0) {
    if (rows >= kRows) {
      MultiplyTile<V, kRows, kVectors, kPartial, false>(tile);
      tile.a += kRows * tile.a_row;
      tile.c += kRows * tile.c_row;
      rows -= kRows;
    }
    MultiplyRest<V, kVectors, kPartial, kRows / 2>(rows, tile);
  }
}

// A panel's column of tiles, over `rows` rows of A and C.
template <typename V, int kVectors, bool kPartial, bool kPackedA>
void MultiplyPanel(int64_t rows, int64_t a_panel, Tile<typename V::Scalar> tile) {
  static_assert(V::kRows <= 16, "MultiplyRest takes each of its heights at most once");
  for (; rows >= V::kRows; rows -= V::kRows) {
    MultiplyTile<V, V::kRows, kVectors, kPartial, kPackedA>(tile);
    tile.a += a_panel;
    tile.c += V::kRows * tile.c_row;
  }
  if (rows > 0) MultiplyRest<V, kVectors, kPartial, V::kRows <= 8 ? 4 : 8>(rows, tile);
}

template <typename V, bool kPackedA>
void MultiplyPanel(int64_t rows, int64_t columns, int64_t a_panel, Tile<typename V::Scalar> tile) {
  constexpr int64_t kWidth = V::kWidth;
  tile.last = columns % kWidth;
  if (columns == 2 * kWidth) return MultiplyPanel<V, 2, false, kPackedA>(rows, a_panel, tile);
  if (columns > kWidth) return MultiplyPanel<V, 2, true, kPackedA>(rows, a_panel, tile);
  if (columns == kWidth) return MultiplyPanel<V, 1, false, kPackedA>(rows, a_panel, tile);
  return MultiplyPanel<V, 1, true, kPackedA>(rows, a_panel, tile);
}

// to[p * to_row + i] = from[i * from_row + p * from_column], i < count, p < k.
template <typename V>
void Pack(const typename V::Scalar* from, int64_t from_row, int64_t from_column, int64_t count,
          int64_t k, typename V::Scalar* to, int64_t to_row) {
  constexpr int64_t kStep = V::kPackStep;
  int64_t p = 0;
  if (from_column == 1) {
    for (; p + kStep <= k; p += kStep) {
      int64_t i = 0;
      for (; i + kStep <= count; i += kStep) {
        V::Transpose(from + i * from_row + p, from_row, to + p * to_row + i, to_row);
      }
      for (; i < count; ++i) {
        for (int64_t q = p; q < p + kStep; ++q) to[q * to_row + i] = from[i * from_row + q];
      }
    }
  }
  for (; p < k; ++p) {
    for (int64_t i = 0; i < count; ++i) to[p * to_row + i] = from[i * from_row + p * from_column];
  }
}

// The product over one block of k and of n at a time, with the block's operands packed where that
// pays.
template <typename V>
class BlockedProduct {
 public:
  using T = typename V::Scalar;
  using Size = Sizes<V>;

  explicit BlockedProduct(const GemmOperands<T>& operands) : g_(operands) {
    // B must have its columns adjacent. Else copies pay when they are used often: B's by every row
    // of tiles, A's by every column.
    const bool large = g_.m * g_.n * g_.k >= kLargeProduct;
    pack_b_ = g_.b_column != 1 || (large && g_.m >= 4 * V::kRows);
    pack_a_ = large && g_.n >= 4 * Size::kTileColumns && g_.m >= V::kRows;
    const int64_t k = Min(g_.k, Size::kBlockK);
    const int64_t b_count = pack_b_ ? RoundUp(Min(g_.n, Size::kBlockN), Size::kTileColumns) * k : 0;
    const int64_t a_count = pack_a_ ? Size::kBlockM * k : 0;
    if (a_count + b_count == 0) return;
    packed_b_ = static_cast<T*>(GemmScratch((a_count + b_count) * sizeof(T)));
    packed_a_ = packed_b_ + b_count;
  }

  void Run() {
    for (int64_t j = 0; j < g_.n; j += Size::kBlockN) {
      for (int64_t p = 0; p < g_.k; p += Size::kBlockK) {
        RunBlock(j, Min(g_.n - j, Size::kBlockN), p, Min(g_.k - p, Size::kBlockK));
      }
    }
  }

 private:
  static constexpr int64_t kLargeProduct = 1 << 18;

  void RunBlock(int64_t j, int64_t n, int64_t p, int64_t k) {
    if (pack_b_) PackB(j, n, p, k);
    const int64_t step = pack_a_ ? Size::kBlockM : g_.m;
    for (int64_t i = 0; i < g_.m; i += step) {
      const int64_t rows = Min(g_.m - i, step);
      if (pack_a_) PackA(i, rows, p, k);
      RunRows(i, rows, j, n, p, k);
    }
  }

  void RunRows(int64_t i, int64_t rows, int64_t j, int64_t n, int64_t p, int64_t k) {
    Tile<T> tile = {};
    tile.k = k;
    tile.a = pack_a_ ? packed_a_ : g_.a + i * g_.a_row + p * g_.a_column;
    tile.a_row = pack_a_ ? 1 : g_.a_row;
    tile.a_column = pack_a_ ? V::kRows : g_.a_column;
    tile.b_row = pack_b_ ? Size::kTileColumns : g_.b_row;
    tile.c_row = g_.c_row;
    tile.from_zero = p == 0 && !g_.accumulate;
    for (int64_t jj = 0; jj < n; jj += Size::kTileColumns) {
      const int64_t columns = Min(n - jj, Size::kTileColumns);
      tile.b = pack_b_ ? packed_b_ + jj * k : g_.b + p * g_.b_row + j + jj;
      tile.c = g_.c + i * g_.c_row + j + jj;
      if (pack_a_) {
        MultiplyPanel<V, true>(rows, columns, V::kRows * k, tile);
      } else {
        MultiplyPanel<V, false>(rows, columns, V::kRows * g_.a_row, tile);
      }
    }
  }

  // Panels of a tile's width, k rows each.
  void PackB(int64_t j, int64_t n, int64_t p, int64_t k) {
    for (int64_t jj = 0; jj < n; jj += Size::kTileColumns) {
      Pack<V>(g_.b + p * g_.b_row + (j + jj) * g_.b_column, g_.b_column, g_.b_row,
              Min(n - jj, Size::kTileColumns), k, packed_b_ + jj * k, Size::kTileColumns);
    }
  }

  // Panels of a tile's height, k columns each.
  void PackA(int64_t i, int64_t rows, int64_t p, int64_t k) {
    for (int64_t ii = 0; ii < rows; ii += V::kRows) {
      Pack<V>(g_.a + (i + ii) * g_.a_row + p * g_.a_column, g_.a_row, g_.a_column,
              Min(rows - ii, V::kRows), k, packed_a_ + ii * k, V::kRows);
    }
  }

  const GemmOperands<T>& g_;
  bool pack_a_, pack_b_;
  T* packed_a_ = nullptr;
  T* packed_b_ = nullptr;
};

template <typename V>
void Multiply(const GemmOperands<typename V::Scalar>& operands) {
  BlockedProduct<V>(operands).Run();
}

}  // namespace
}  // namespace sumonce::internal

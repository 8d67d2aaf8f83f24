// Named dimensions of tensors. A fused feature dimension is named by its shardable part, so that a
// shard is a block of whole units of one named dimension: a fused qkv output is [s, b, g], g made
// of `groups` units, each of the parts {q heads, k, v}. Packing says how the parts of the units lie
// in memory (docs/THEORY.md "Packing").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace sumonce {

enum class Dim : uint8_t {
  kSequence,     // s: tokens of the sequence
  kBatch,        // b: sequences of a microbatch
  kHidden,       // h
  kGroup,        // g: key-value groups of attention
  kKeyHead,      // k: key heads of GatedDeltaNet
  kFfn,          // f: features of the MLP
  kVocab,        // v
  kLoraRank,     // r
  kHeadInGroup,  // q: query heads of one group
  kValueInKey,   // j: value heads of one key head
  kHeadDim,      // d: entries of one head
  kTap,          // t: taps of the convolution
  kOut,          // o: output features of a stand-alone linear layer
  kIn,           // i: input features of a stand-alone linear layer
  kPosition,     // p: rows of a learned position embedding
  kLatent,       // l: entries of a low-rank latent (multi-latent attention)
  kKeyEntry,     // e: entries of a key, of a recurrent state [.., e, d]
};
inline constexpr int kNumDims = 17;
std::string_view Name(Dim dim);  // one letter, as above

using DimSet = uint32_t;
constexpr DimSet SetOf() { return 0; }
template <typename... Rest>
constexpr DimSet SetOf(Dim first, Rest... rest) {
  return (DimSet{1} << static_cast<int>(first)) | SetOf(rest...);
}
constexpr bool Contains(DimSet set, Dim dim) { return (set & SetOf(dim)) != 0; }
std::string Describe(DimSet set);  // "s", "g,d", "" if empty

// One dimension of a tensor: `units` units, each of parts with the widths `parts`.
// kUnitMajor: each unit's parts lie together (Megatron's qkv; mcore-bridge's in_proj). kPartMajor:
// all units of part 0, then all of part 1 (gate | up; Megatron's in_proj q | k | v | z | beta |
// alpha). A shard is a block of units, in every part.
enum class Packing : uint8_t { kUnitMajor, kPartMajor };

struct DimExtent {
  Dim dim = Dim::kHidden;
  int64_t units = 1;
  absl::InlinedVector<int64_t, 6> parts = {1};
  Packing packing = Packing::kUnitMajor;

  int64_t width() const;  // of one unit: the sum of its parts
  int64_t extent() const { return units * width(); }
  bool plain() const { return parts.size() == 1; }
  // Position in memory of element `i` of part `part` of unit `unit`.
  int64_t Index(int64_t unit, size_t part, int64_t i) const;
  bool operator==(const DimExtent&) const = default;
};

// The dimensions of a tensor, outermost first. A dimension occurs at most once.
using Dims = absl::InlinedVector<DimExtent, 5>;
int64_t Count(const Dims& dims);      // elements
int Find(const Dims& dims, Dim dim);  // position, or -1
DimSet SetOf(const Dims& dims);
std::string Describe(const Dims& dims);    // "[s=8, b=2, g=2x(4,4,4)]"
DimExtent Plain(Dim dim, int64_t extent);  // units of width 1

}  // namespace sumonce

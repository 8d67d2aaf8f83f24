// Numbers keyed by (seed, name, global element index): a shard's numbers are the slice of the
// whole's, on any machine and in any order of asking. Philox4x32-10 of Random123 (Salmon et al., SC
// 2011); the key is the seed mixed with a 64-bit hash of the name, the counter is the index.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace sumonce {

// The bare generator: 128 random bits, least significant word first, of a counter (ditto) and a
// key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, uint64_t key);

class RandomStream {
 public:
  RandomStream(uint64_t seed, std::string_view name);

  // 64 random bits of element `index`.
  uint64_t Bits(uint64_t index) const;
  // Uniform in [0, 1), 53 bits.
  double Uniform(uint64_t index) const;
  // Standard normal (Box-Muller with SLEEF's bit-reproducible functions); |value| < 8.6.
  double Normal(uint64_t index) const;
  // Uniform integer in [low, high], both included; high - low < 2^32. No value is off its share by
  // more than 2^-32.
  int64_t Integer(uint64_t index, int64_t low, int64_t high) const;

 private:
  uint64_t key_;
};

}  // namespace sumonce

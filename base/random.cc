#include "base/random.h"

#include <Random123/philox.h>

#include <cmath>

#include "base/math.h"
#include "base/status.h"

namespace sumonce {
namespace {

constexpr double kTwoPi = 6.283185307179586;

// FNV-1a, 64 bits (Fowler, Noll, Vo): fixed for all time, unlike std::hash.
uint64_t HashOf(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): neighbouring seeds get unrelated
// keys.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t Join(uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; }

std::array<uint32_t, 4> Block(uint64_t key, uint64_t index) {
  return Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0}, key);
}

// The upper 53 bits as a multiple of 2^-53.
double Fraction(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, uint64_t key) {
  r123::Philox4x32::ctr_type words = {{counter[0], counter[1], counter[2], counter[3]}};
  r123::Philox4x32::key_type keys = {
      {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}};
  words = r123::Philox4x32()(words, keys);
  return {words[0], words[1], words[2], words[3]};
}

RandomStream::RandomStream(uint64_t seed, std::string_view name)
    : key_(Mix(Mix(seed + 0x9e3779b97f4a7c15u) ^ HashOf(name))) {}

uint64_t RandomStream::Bits(uint64_t index) const {
  const auto words = Block(key_, index);
  return Join(words[0], words[1]);
}

double RandomStream::Uniform(uint64_t index) const { return Fraction(Bits(index)); }

double RandomStream::Normal(uint64_t index) const {
  const auto words = Block(key_, index);
  const double radius_uniform =
      Fraction(Join(words[0], words[1])) + 0x1p-53;  // (0, 1]: its log is finite
  const double angle = kTwoPi * Fraction(Join(words[2], words[3]));
  return std::sqrt(-2.0 * Log(radius_uniform)) * Cos(angle);
}

int64_t RandomStream::Integer(uint64_t index, int64_t low, int64_t high) const {
  SUMONCE_CHECK(low <= high) << low << " to " << high;
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  SUMONCE_CHECK(span <= 0xffffffffu) << low << " to " << high;
  // The upper 64 bits of bits * (span + 1), in two halves that cannot overflow.
  const uint64_t values = span + 1;
  const uint64_t bits = Bits(index);
  const uint64_t scaled = ((bits >> 32) * values + ((bits & 0xffffffffu) * values >> 32)) >> 32;
  return static_cast<int64_t>(static_cast<uint64_t>(low) + scaled);
}

}  // namespace sumonce

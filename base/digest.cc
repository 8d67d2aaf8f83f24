#include "base/digest.h"

#include <xxhash.h>

#include <bit>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace sumonce {

static_assert(std::endian::native == std::endian::little, "digests are of little-endian bytes");

Digest::Digest() : state_(XXH3_createState()) {
  SUMONCE_CHECK(state_ != nullptr) << "no memory";
  XXH3_128bits_reset(state_.get());
}

void Digest::Add(std::string_view text) { AddFramed('s', text.data(), text.size(), text.size()); }

void Digest::Add(std::span<const double> values) {
  AddFramed('d', values.data(), values.size(), values.size_bytes());
}

void Digest::Add(int64_t value) { AddFramed('i', &value, 1, sizeof(value)); }

std::string Digest::Hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

void Digest::FreeState::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void Digest::AddFramed(char kind, const void* data, size_t count, size_t bytes) {
  const uint64_t length = count;
  XXH3_128bits_update(state_.get(), &kind, sizeof(kind));
  XXH3_128bits_update(state_.get(), &length, sizeof(length));
  if (bytes > 0) XXH3_128bits_update(state_.get(), data, bytes);
}

}  // namespace sumonce

// A fingerprint of a run's results: XXH3 with 128 bits (xxHash, Yann Collet) over everything that
// was added, in order. Equal calls give equal digests on every machine. Each call adds its kind and
// length as well, so ("ab", "c") and
// ("a", "bc") differ. Numbers count by their bits: -0.0 is not 0.0, and NaNs with other payloads
// are other values.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace sumonce {

class Digest {
 public:
  Digest();

  void Add(std::string_view text);
  void Add(std::span<const double> values);
  void Add(int64_t value);
  // A literal would rather become an integer of its address than a string_view.
  void Add(const char* text) { Add(std::string_view(text)); }

  // 32 lowercase hexadecimal digits, most significant first. More may be added afterwards.
  std::string Hex() const;

 private:
  struct FreeState {
    void operator()(XXH3_state_s* state) const;
  };

  void AddFramed(char kind, const void* data, size_t count, size_t bytes);

  std::unique_ptr<XXH3_state_s, FreeState> state_;
};

}  // namespace sumonce

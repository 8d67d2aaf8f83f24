// Values as bytes and back, for messages between processes of one program: fixed widths in the
// machine's own byte order, texts and arrays after their length. A reader never reads beyond its
// bytes: what does not fit makes it fail once and for all, and everything after that reads as zero.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sumonce {

class ByteWriter {
 public:
  void U8(uint8_t value) { Raw(&value, sizeof value); }
  void I64(int64_t value) { Raw(&value, sizeof value); }
  void F64(double value) { Raw(&value, sizeof value); }
  void Text(std::string_view text);
  void Doubles(std::span<const double> values);
  void Raw(const void* data, size_t bytes) { bytes_.append(static_cast<const char*>(data), bytes); }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  // `bytes` outlives the reader.
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  uint8_t U8();
  int64_t I64();
  double F64();
  std::string Text();
  std::vector<double> Doubles();
  // A number of things that follow, each of at least `bytes_each` bytes: 0 if so many cannot.
  int64_t Count(size_t bytes_each);
  std::string_view rest() const { return rest_; }

  bool ok() const { return ok_; }
  // Everything was read, and nothing is left.
  bool AtEnd() const { return ok_ && rest_.empty(); }

 private:
  bool Raw(void* data, size_t bytes);

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace sumonce

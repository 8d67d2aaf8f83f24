#include "base/bytes.h"

#include <cstring>

namespace sumonce {

void ByteWriter::Text(std::string_view text) {
  I64(static_cast<int64_t>(text.size()));
  Raw(text.data(), text.size());
}

void ByteWriter::Doubles(std::span<const double> values) {
  I64(static_cast<int64_t>(values.size()));
  Raw(values.data(), values.size_bytes());
}

uint8_t ByteReader::U8() {
  uint8_t value = 0;
  Raw(&value, sizeof value);
  return value;
}

int64_t ByteReader::I64() {
  int64_t value = 0;
  Raw(&value, sizeof value);
  return value;
}

double ByteReader::F64() {
  double value = 0;
  Raw(&value, sizeof value);
  return value;
}

std::string ByteReader::Text() {
  std::string text(Count(1), '\0');
  Raw(text.data(), text.size());
  return text;
}

std::vector<double> ByteReader::Doubles() {
  std::vector<double> values(Count(sizeof(double)));
  Raw(values.data(), values.size() * sizeof(double));
  return values;
}

int64_t ByteReader::Count(size_t bytes_each) {
  const int64_t count = I64();
  if (count >= 0 && static_cast<uint64_t>(count) <= rest_.size() / bytes_each) return count;
  ok_ = false;
  return 0;
}

bool ByteReader::Raw(void* data, size_t bytes) {
  if (bytes > rest_.size()) ok_ = false;
  if (!ok_) return false;
  if (bytes > 0) std::memcpy(data, rest_.data(), bytes);
  rest_.remove_prefix(bytes);
  return true;
}

}  // namespace sumonce

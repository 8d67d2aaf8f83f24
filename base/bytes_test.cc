#include "base/bytes.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace sumonce {
namespace {

std::string Sample() {
  ByteWriter writer;
  writer.U8(7);
  writer.I64(std::numeric_limits<int64_t>::min());
  writer.Text("tp [0 1]");
  writer.Doubles(std::vector<double>{-0.0, 1e-320});
  writer.F64(0.1);
  return writer.Take();
}

TEST(Bytes, ComeBackToTheBit) {
  const std::string bytes = Sample();
  ByteReader reader(bytes);
  EXPECT_EQ(reader.U8(), 7);
  EXPECT_EQ(reader.I64(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(reader.Text(), "tp [0 1]");
  const std::vector<double> values = reader.Doubles();
  ASSERT_EQ(values.size(), 2u);
  EXPECT_TRUE(std::signbit(values[0]));
  EXPECT_EQ(values[1], 1e-320);
  EXPECT_FALSE(reader.AtEnd());
  EXPECT_EQ(reader.F64(), 0.1);
  EXPECT_TRUE(reader.AtEnd());
}

// Cut anywhere: the reader fails, stays within its bytes and allocates nothing that they do not
// hold.
TEST(Bytes, ATruncatedMessageFails) {
  const std::string bytes = Sample();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    ByteReader reader(cut);
    reader.U8();
    reader.I64();
    reader.Text();
    reader.Doubles();
    reader.F64();
    EXPECT_FALSE(reader.ok()) << size;
  }
}

TEST(Bytes, AnAbsurdLengthIsRefused) {
  for (const int64_t length : {int64_t{-1}, int64_t{3}, std::numeric_limits<int64_t>::max()}) {
    ByteWriter writer;
    writer.I64(length);
    writer.U8(1);
    const std::string bytes = writer.Take();
    ByteReader text(bytes);
    EXPECT_EQ(text.Text(), "");
    EXPECT_FALSE(text.ok());
    ByteReader doubles(bytes);
    EXPECT_TRUE(doubles.Doubles().empty());
    EXPECT_EQ(doubles.U8(), 0) << "a failed reader reads no further";
  }
}

}  // namespace
}  // namespace sumonce

#include "base/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/safetensors_header.h"

namespace sumonce {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() {
    std::string pattern = testing::TempDir() + "/safetensors_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~SafetensorsTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  std::string WriteBytes(const std::string& bytes) const {
    std::string path = Path("file.safetensors");
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return path;
  }

  absl::Status OpenBytes(const std::string& bytes) const {
    return SafetensorsReader::Open(WriteBytes(bytes)).status();
  }

  std::string folder_;
};

std::string Prefix(uint64_t length) { return std::string(reinterpret_cast<char*>(&length), 8); }

std::string FileOf(const std::string& header, int64_t data_bytes) {
  return Prefix(header.size()) + header + std::string(data_bytes, '\0');
}

std::string Entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

void ExpectInvalid(const absl::Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("file.safetensors: "), HasSubstr(part)));
}

// Pieces are the whole's, also across the reader's own chunks; none reaches beyond the tensor.
TEST_F(SafetensorsTest, ReadsInPieces) {
  const int64_t count = (1 << 17) + 5;
  TensorToWrite tensor{.dtype = DType::kFloat32, .shape = {count}, .values = {}};
  for (int64_t i = 0; i < count; ++i) tensor.values.push_back(static_cast<double>(i));
  const TensorToWrite before{.dtype = DType::kFloat64, .shape = {3}, .values = {7, 8, 9}};
  ASSERT_TRUE(WriteSafetensors(Path("pieces"), {{"a", before}, {"b", tensor}}, {}, false).ok());
  const auto reader = SafetensorsReader::Open(Path("pieces")).value();
  std::vector<double> piece((1 << 16) + 3);
  ASSERT_TRUE(reader.ReadRange("b", 65000, piece).ok());
  for (size_t i = 0; i < piece.size(); ++i) ASSERT_EQ(piece[i], 65000.0 + static_cast<double>(i));
  std::vector<double> last(2);
  ASSERT_TRUE(reader.ReadRange("b", count - 2, last).ok());
  EXPECT_THAT(last, ElementsAre(count - 2, count - 1));
  EXPECT_EQ(reader.ReadRange("b", count - 1, last).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(reader.ReadRange("b", -1, last).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(reader.ReadRange("c", 0, last).code(), absl::StatusCode::kNotFound);
}

TEST_F(SafetensorsTest, ReadsAGoldenFile) {
  const auto reader =
      SafetensorsReader::Open(SUMONCE_TEST_DATA "/golden/rmsnorm.f64.safetensors").value();
  EXPECT_EQ(reader.metadata().at("case"), "rmsnorm");
  EXPECT_EQ(reader.tensors().size(), 6u);
  const TensorInfo& info = reader.tensors().at("in.x");
  EXPECT_EQ(info.dtype, DType::kFloat64);
  EXPECT_THAT(info.shape, ElementsAre(3, 5, 16));
  EXPECT_EQ(info.count(), 240);
  // y = x / sqrt(mean(x^2) + eps) * w ties four tensors and the eps of the file's description
  // together.
  const auto x = reader.Read("in.x").value(), y = reader.Read("out.y").value();
  const auto weight = reader.Read("param.weight").value();
  ASSERT_EQ(x.size(), 240u);
  for (int row = 0; row < 15; ++row) {
    double square_sum = 0;
    for (int i = 0; i < 16; ++i) square_sum += x[row * 16 + i] * x[row * 16 + i];
    const double scale = 1 / std::sqrt(square_sum / 16 + 1e-6);
    for (int i = 0; i < 16; ++i) {
      const double expected = x[row * 16 + i] * scale * weight[i];
      EXPECT_NEAR(y[row * 16 + i], expected, 1e-12 * std::fabs(expected));
    }
  }
}

TEST_F(SafetensorsTest, EveryGoldenFileOpensAndReads) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SUMONCE_TEST_DATA "/golden")) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto reader = SafetensorsReader::Open(entry.path()).value();
    for (const auto& [name, info] : reader.tensors()) {
      EXPECT_EQ(static_cast<int64_t>(reader.Read(name).value().size()), info.count());
    }
    ++files;
  }
  EXPECT_EQ(files, 130);
}

TEST_F(SafetensorsTest, WrittenFilesReadBack) {
  const std::string path = Path("written.safetensors");
  const double inf = std::numeric_limits<double>::infinity();
  const std::map<std::string, TensorToWrite> tensors = {
      {"bf16", {DType::kBFloat16, {3}, {1.0, 1.00390625, inf}}},
      {"f32", {DType::kFloat32, {2, 1}, {0.1, -0.0}}},
      {"f64", {DType::kFloat64, {}, {0.1}}},
      {"nothing", {DType::kFloat64, {4, 0}, {}}}};
  ASSERT_TRUE(WriteSafetensors(path, tensors, {{"step", "3"}}, false).ok());
  const auto reader = SafetensorsReader::Open(path).value();
  EXPECT_THAT(reader.metadata(), ElementsAre(testing::Pair("step", "3")));
  EXPECT_THAT(reader.tensors().at("f32").shape, ElementsAre(2, 1));
  EXPECT_THAT(reader.tensors().at("f64").shape, ElementsAre());
  EXPECT_THAT(reader.tensors().at("nothing").shape, ElementsAre(4, 0));
  EXPECT_THAT(reader.Read("f64").value(), ElementsAre(0.1));
  EXPECT_THAT(reader.Read("f32").value(), ElementsAre(static_cast<double>(0.1f), -0.0));
  EXPECT_THAT(reader.Read("bf16").value(), ElementsAre(1.0, 1.0, inf));  // tie to even
  EXPECT_THAT(reader.Read("nothing").value(), ElementsAre());
  for (const auto& [name, info] : reader.tensors()) EXPECT_EQ(info.begin % SizeOf(info.dtype), 0);
}

TEST_F(SafetensorsTest, WrittenHeadersAreAlignedAndOnlyTheFileRemains) {
  const std::string path = Path("written.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, {{"x", {DType::kFloat64, {1}, {2.5}}}}, {}, false).ok());
  std::ifstream file(path, std::ios::binary);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(std::filesystem::file_size(path), 8 + length + 8);
  using Iterator = std::filesystem::directory_iterator;
  EXPECT_EQ(std::distance(Iterator(folder_), Iterator()), 1);
}

TEST_F(SafetensorsTest, WriterRefusesToOverwriteUnlessAsked) {
  const std::string path = Path("x.safetensors");
  const auto write = [&](double value, bool overwrite) {
    return WriteSafetensors(path, {{"x", {DType::kFloat64, {1}, {value}}}}, {}, overwrite).code();
  };
  const auto value = [&] { return SafetensorsReader::Open(path).value().Read("x").value()[0]; };
  EXPECT_EQ(write(1, false), absl::StatusCode::kOk);
  EXPECT_EQ(write(2, false), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(value(), 1);
  EXPECT_EQ(write(3, true), absl::StatusCode::kOk);
  EXPECT_EQ(value(), 3);
}

TEST_F(SafetensorsTest, WriterRefusesWhatItCannotKeep) {
  const std::string path = Path("file.safetensors");
  const auto write = [&](const std::string& name, const TensorToWrite& tensor) {
    return WriteSafetensors(path, {{name, tensor}}, {}, false);
  };
  ExpectInvalid(write("w", {DType::kFloat32, {2, 3}, {1}}), "[2, 3] has 6 elements, but 1 values");
  ExpectInvalid(write("w", {DType::kFloat32, {-1}, {}}), "tensor 'w': extent -1 < 0");
  ExpectInvalid(write("w", {DType::kInt64, {1}, {1}}), "int64 cannot be written");
  ExpectInvalid(write("__metadata__", {DType::kFloat32, {1}, {1}}), "container's own");
  ExpectInvalid(write("\xff", {DType::kFloat32, {1}, {1}}), "not UTF-8");
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(WriteSafetensors(Path("no/such/folder"), {}, {}, false).code(),
            absl::StatusCode::kNotFound);
}

TEST_F(SafetensorsTest, EveryDTypeIsWidened) {
  const std::string header =
      "{\"a\":" + Entry("F16", "[1]", "[0,2]") + ",\"b\":" + Entry("BF16", "[1]", "[2,4]") +
      ",\"c\":" + Entry("I32", "[1]", "[4,8]") + ",\"d\":" + Entry("I64", "[1]", "[8,16]") +
      ",\"e\":" + Entry("U8", "[2]", "[16,18]") + ",\"f\":" + Entry("F8_E4M3", "[1]", "[18,19]") +
      ",\"g\":" + Entry("F8_E5M2", "[1]", "[19,20]") + "}";
  const std::string data(
      "\x00\xc0\x80\x3f\xfe\xff\xff\xff\xfd\xff\xff\xff\xff\xff\xff\xff\x01\xff\x38\xc0", 20);
  const auto reader =
      SafetensorsReader::Open(WriteBytes(Prefix(header.size()) + header + data)).value();
  EXPECT_THAT(reader.Read("a").value(), ElementsAre(-2));
  EXPECT_THAT(reader.Read("b").value(), ElementsAre(1));
  EXPECT_THAT(reader.Read("c").value(), ElementsAre(-2));
  EXPECT_THAT(reader.Read("d").value(), ElementsAre(-3));
  EXPECT_THAT(reader.Read("e").value(), ElementsAre(1, 255));
  EXPECT_THAT(reader.Read("f").value(), ElementsAre(1));
  EXPECT_THAT(reader.Read("g").value(), ElementsAre(-2));
}

TEST_F(SafetensorsTest, TensorsBeyondOneChunkKeepTheirOrder) {
  TensorToWrite tensor{DType::kFloat64, {150000}, std::vector<double>(150000)};
  for (size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] = static_cast<double>(i);
  const std::string path = Path("long.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, {{"x", tensor}}, {}, false).ok());
  EXPECT_EQ(SafetensorsReader::Open(path).value().Read("x").value(), tensor.values);
}

TEST_F(SafetensorsTest, UnknownNamesGetASuggestion) {
  const std::string header = R"({"layer.lora_A":)" + Entry("U8", "[1]", "[0,1]") + "}";
  const auto reader = SafetensorsReader::Open(WriteBytes(FileOf(header, 1))).value();
  const absl::Status status = reader.Read("layer.lora_B").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no tensor 'layer.lora_B' among its 1; did you mean 'layer.lora_A'?"));
}

TEST_F(SafetensorsTest, WhatIsNoReadableFileSaysSo) {
  EXPECT_EQ(SafetensorsReader::Open(Path("none")).status().code(), absl::StatusCode::kNotFound);
  const absl::Status folder = SafetensorsReader::Open(folder_).status();
  EXPECT_EQ(folder.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(folder.message()), HasSubstr("is a directory"));
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);  // opening it would wait for a writer for ever
  EXPECT_THAT(std::string(SafetensorsReader::Open(Path("fifo")).status().message()),
              HasSubstr("is not a regular file"));
  EXPECT_EQ(SafetensorsReader::Open(Path("file\x01/below")).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(SafetensorsTest, AFileWithoutPermissionSaysSo) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const std::string path = WriteBytes(FileOf("{}", 0));
  chmod(path.c_str(), 0);
  EXPECT_EQ(SafetensorsReader::Open(path).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(SafetensorsTest, AFileCutAfterOpenIsAnErrorNotGarbage) {
  const std::string path = WriteBytes(FileOf(R"({"x":)" + Entry("F64", "[2]", "[0,16]") + "}", 16));
  const auto reader = SafetensorsReader::Open(path).value();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  ExpectInvalid(reader.Read("x").status(), "tensor 'x' ends early");
}

TEST_F(SafetensorsTest, HostileLengths) {
  ExpectInvalid(OpenBytes(""), "has 0 bytes");
  ExpectInvalid(OpenBytes("1234567"), "has 7 bytes");
  ExpectInvalid(OpenBytes(Prefix(0)), "does not begin with '{'");
  ExpectInvalid(OpenBytes(Prefix(100000001) + "{}"), "header length 100000001 is beyond the limit");
  ExpectInvalid(OpenBytes(Prefix(~uint64_t{0}) + "{}"), "beyond the limit");
  ExpectInvalid(OpenBytes(Prefix(3) + "{}"), "header length 3, but only 2 bytes follow");
  EXPECT_TRUE(OpenBytes(FileOf("{}      ", 0)).ok());
  ExpectInvalid(OpenBytes(FileOf(" {}", 0)), "does not begin with '{'");
}

struct HostileHeader {
  const char* description;
  std::string header;
  const char* message;
};

TEST_F(SafetensorsTest, HostileHeaders) {
  const std::string good = Entry("U8", "[8]", "[0,8]");
  const std::string deep = std::string(100000, '[');
  const HostileHeader cases[] = {
      {"truncated JSON", R"({"a":)", "not valid JSON at its byte 6"},
      {"text behind", "{}x", "not valid JSON"},
      {"bad UTF-8", "{\"\xff\":1}", "not valid JSON"},
      {"duplicate tensor", R"({"a":)" + good + R"(,"a":)" + good + "}", "the key 'a' comes twice"},
      {"duplicate metadata", R"({"__metadata__":{},"__metadata__":{}})", "comes twice"},
      {"duplicate in metadata", R"({"__metadata__":{"k":"1","k":"2"}})",
       "__metadata__: the key 'k' comes twice"},
      {"duplicate field", R"({"a":{"dtype":"U8","dtype":"U8"}})", "the key 'dtype' comes twice"},
      {"number as tensor", R"({"a":1})", "found 1, expected an object as the value of 'a'"},
      {"number as metadata", R"({"__metadata__":{"k":1}})", "found 1, expected a string"},
      {"metadata as list", R"({"__metadata__":[]})", "found an array, expected an object"},
      {"unknown field", R"({"a":{"stride":1}})", "expected only dtype, shape and data_offsets"},
      {"no dtype", R"({"a":{"shape":[8],"data_offsets":[0,8]}})", "tensor 'a': has no dtype"},
      {"no shape", R"({"a":{"dtype":"U8","data_offsets":[0,8]}})", "has no shape"},
      {"no offsets", R"({"a":{"dtype":"U8","shape":[8]}})", "has no data_offsets"},
      {"unknown dtype", R"({"a":)" + Entry("F7", "[8]", "[0,8]") + "}",
       "tensor 'a': unknown dtype 'F7', expected one of F64, F32, BF16"},
      {"dtype as number", R"({"a":{"dtype":5}})", "found 5, expected a string as dtype"},
      {"negative extent", R"({"a":)" + Entry("U8", "[-8]", "[0,8]") + "}",
       "found -8, expected integers >= 0 in shape"},
      {"fraction", R"({"a":)" + Entry("U8", "[8.5]", "[0,8]") + "}", "found 8.5, expected"},
      {"text in shape", R"({"a":)" + Entry("U8", "[\"8\"]", "[0,8]") + "}", "found the string '8'"},
      {"beyond int64", R"({"a":)" + Entry("U8", "[9223372036854775808]", "[0,8]") + "}",
       "beyond 2^63 - 1"},
      {"beyond uint64", R"({"a":)" + Entry("U8", "[99999999999999999999]", "[0,8]") + "}",
       "found 99999999999999999999"},
      {"overflow to 0", R"({"a":)" + Entry("U8", "[4294967296,4294967296]", "[0,0]") + "}",
       "more than 2^63 - 1 bytes"},
      {"overflow by dtype", R"({"a":)" + Entry("F64", "[2305843009213693952]", "[0,0]") + "}",
       "more than 2^63 - 1 bytes"},
      {"rank", R"({"a":)" + Entry("U8", "[1" + std::string(200, ',') + "1]", "[0,8]") + "}",
       "not valid JSON"},
      {"one offset", R"({"a":)" + Entry("U8", "[8]", "[8]") + "}", "has 1 entries, expected 2"},
      {"three offsets", R"({"a":)" + Entry("U8", "[8]", "[0,8,9]") + "}", "more than 2 entries"},
      {"reversed", R"({"a":)" + Entry("U8", "[8]", "[8,0]") + "}", "[8, 0] are not the 8 bytes"},
      {"wrong size", R"({"a":)" + Entry("F32", "[2,3]", "[0,8]") + "}",
       "data_offsets [0, 8] are not the 24 bytes of float32 [2, 3]"},
      {"hole before", R"({"a":)" + Entry("U8", "[7]", "[1,8]") + "}",
       "begins at byte 1 of the data"},
      {"hole behind", R"({"a":)" + Entry("U8", "[7]", "[0,7]") + "}", "belong to no tensor"},
      {"truncated data", R"({"a":)" + Entry("U8", "[9]", "[0,9]") + "}",
       "holds 8 bytes of data, the tensors have 9: truncated"},
      {"overlap", R"({"a":)" + good + R"(,"b":)" + Entry("U8", "[4]", "[4,8]") + "}",
       "tensor 'b' begins at byte 4 of the data, expected 8: it overlaps"},
      {"deep lists", R"({"a":)" + deep, "found an array"},
      {"deep in a shape", R"({"a":{"shape":)" + deep, "found an array, expected integers"},
      {"deep objects", R"({"a":{"b":{"c":{"d":{}}}}})", "found an object"}};
  for (const HostileHeader& hostile : cases) {
    SCOPED_TRACE(hostile.description);
    ExpectInvalid(OpenBytes(FileOf(hostile.header, 8)), hostile.message);
  }
}

TEST_F(SafetensorsTest, RankIsLimitedAndLongNamesAreCutInMessages) {
  std::string shape = "[1";
  for (int i = 0; i < 64; ++i) shape += ",1";
  ExpectInvalid(OpenBytes(FileOf(R"({"a":)" + Entry("U8", shape + "]", "[0,1]") + "}", 1)),
                "shape has more than 64 entries");
  const absl::Status status = OpenBytes(FileOf("{\"" + std::string(100000, 'n') + "\":1}", 0));
  ExpectInvalid(status, "nnn...'");
  EXPECT_LT(status.message().size(), 1000u);
}

TEST_F(SafetensorsTest, ZeroSizedTensorsAndUnpaddedHeadersAreFine) {
  const std::string header = R"({"z":)" + Entry("F32", "[0,5]", "[8,8]") + R"(,"a":)" +
                             Entry("U8", "[8]", "[0,8]") + R"(,"b":)" +
                             Entry("F64", "[0]", "[0,0]") + "}";
  EXPECT_TRUE(OpenBytes(FileOf(header, 8)).ok());
  EXPECT_TRUE(OpenBytes(FileOf(header + " ", 8)).ok());
}

const char kFuzzHeader[] =
    R"({"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
    R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}})";

// Each byte of a header replaced by every other: never a crash, and what is accepted is consistent.
TEST(SafetensorsHeaderTest, DamagedHeadersNeverCrash) {
  const std::string valid = kFuzzHeader;
  int accepted = 0, refused = 0;
  for (size_t i = 0; i < valid.size(); ++i) {
    std::string damaged = valid;
    for (int byte = 0; byte < 256; ++byte) {
      damaged[i] = static_cast<char>(byte);
      const auto header = internal::ParseSafetensorsHeader(damaged);
      header.ok() ? ++accepted : ++refused;
      if (!header.ok()) {
        EXPECT_FALSE(header.status().message().empty());
        continue;
      }
      for (const auto& [name, info] : header->tensors) {
        EXPECT_EQ(info.end - info.begin, info.count() * SizeOf(info.dtype)) << damaged;
      }
    }
  }
  EXPECT_GT(accepted, 300);  // letters of names and texts
  EXPECT_GT(refused, 30000);
}

// The same of whole files: a flipped bit in each byte before the data, and a cut at each place.
// What opens also reads (to be run under AddressSanitizer for reads out of bounds).
TEST_F(SafetensorsTest, DamagedFilesNeverCrash) {
  const std::string valid = FileOf(kFuzzHeader, 14);
  ASSERT_TRUE(OpenBytes(valid).ok());
  for (size_t i = 0; i < 8 + sizeof(kFuzzHeader) - 1; ++i) {
    std::string damaged = valid;
    damaged[i] = static_cast<char>(valid[i] ^ (1 << i % 7));
    const auto reader = SafetensorsReader::Open(WriteBytes(damaged));
    if (!reader.ok()) {
      ExpectInvalid(reader.status(), "");
      continue;
    }
    for (const auto& [name, info] : reader->tensors()) {
      EXPECT_EQ(static_cast<int64_t>(reader->Read(name).value().size()), info.count());
    }
  }
  for (size_t size = 0; size < valid.size(); ++size) {
    ExpectInvalid(OpenBytes(valid.substr(0, size)), "");
  }
}

}  // namespace
}  // namespace sumonce

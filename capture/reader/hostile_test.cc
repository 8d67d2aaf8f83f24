// Files that are no captures, or no longer: each a clear error that names the file, and what is
// left is audited.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "capture/audit/audit.h"
#include "capture/reader/step.h"
#include "nlohmann/json.hpp"

namespace sumonce::capture {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

json MetadataOf(int rank, int world_size) {
  return {{"format", "sumonce-capture"},
          {"version", "1"},
          {"step", "1"},
          {"rank", std::to_string(rank)},
          {"world_size", std::to_string(world_size)},
          {"mesh", json({{"dp", {{"size", world_size}, {"coordinate", rank}}}}).dump()},
          {"ddp", R"({"gradient_scaling_factor": 0.5})"},
          {"params", "{}"}};
}

// A safetensors file: tensors of one dtype with their bytes.
std::string FileOf(const std::string& dtype, const std::map<std::string, std::string>& tensors,
                   int64_t element_bytes, const json& metadata) {
  json header = {{"__metadata__", metadata}};
  std::string data;
  for (const auto& [name, bytes] : tensors) {
    header[name] = {{"dtype", dtype},
                    {"shape", {bytes.size() / element_bytes}},
                    {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text + data;
}

class HostileTest : public testing::Test {
 protected:
  HostileTest() {
    std::string pattern = testing::TempDir() + "/hostile_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    fs::create_directories(folder_ + "/step-0001");
    for (int rank = 0; rank < 2; ++rank) Write(rank, Good(rank));
  }
  ~HostileTest() override { fs::remove_all(folder_); }

  static std::string Bytes(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  }

  // dp 2, the mean: everything right.
  static std::string Good(int rank) {
    const std::string mine =
        Bytes(rank == 0 ? std::vector<float>{1, 2, 3, 4} : std::vector<float>{5, -2, 3, 8});
    return FileOf("F32", {{"contribution/w", mine}, {"finalized/w", Bytes({3, 0, 3, 6})}}, 4,
                  MetadataOf(rank, 2));
  }

  std::string Path(int rank) const {
    return folder_ + "/step-0001/rank-" + std::to_string(rank) + ".safetensors";
  }
  void Write(int rank, const std::string& bytes) const {
    std::ofstream(Path(rank), std::ios::binary | std::ios::trunc) << bytes;
  }

  // The other rank is audited, and the fault names the file.
  void ExpectFault(const std::string& part) const {
    const absl::StatusOr<Audit> audit = AuditCapture(folder_, {});
    ASSERT_TRUE(audit.ok()) << audit.status();
    ASSERT_THAT(audit->faults, testing::SizeIs(1));
    EXPECT_THAT(audit->faults[0], HasSubstr("rank-1.safetensors"));
    EXPECT_THAT(audit->faults[0], HasSubstr(part));
    ASSERT_THAT(audit->params, testing::SizeIs(1));
    EXPECT_EQ(audit->params[0].verdict.outcome, Outcome::kNoStatement);
    EXPECT_THAT(audit->params[0].verdict.evidence,
                testing::Contains(HasSubstr("missing files: those of rank 1")));
  }

  std::string folder_;
};

TEST_F(HostileTest, TheGoodOnesAreRight) {
  const absl::StatusOr<Audit> audit = AuditCapture(folder_, {});
  ASSERT_TRUE(audit.ok()) << audit.status();
  EXPECT_THAT(audit->faults, testing::IsEmpty());
  EXPECT_EQ(audit->params.at(0).verdict.outcome, Outcome::kRight);
}

TEST_F(HostileTest, EveryTruncationIsTold) {
  const std::string good = Good(1);
  for (size_t length = 0; length < good.size(); length += 7) {
    Write(1, good.substr(0, length));
    const absl::StatusOr<Audit> audit = AuditCapture(folder_, {});
    ASSERT_TRUE(audit.ok()) << length;
    EXPECT_THAT(audit->faults, testing::SizeIs(1)) << length;
  }
}

TEST_F(HostileTest, NoContainerNoCaptureNoJson) {
  Write(1, std::string(1 << 16, '\xff'));
  ExpectFault("beyond the limit");
  Write(1, FileOf("F32", {{"w", Bytes({1})}}, 4, {{"format", "pt"}}));
  ExpectFault("expected \"sumonce-capture\"");
  json metadata = MetadataOf(1, 2);
  metadata["mesh"] = "{";
  Write(1, FileOf("F32", {{"finalized/w", Bytes({1})}}, 4, metadata));
  ExpectFault("'mesh' is no JSON");
  Write(1, FileOf("F4", {{"finalized/w", Bytes({1})}}, 4, MetadataOf(1, 2)));
  ExpectFault("F4");
}

TEST_F(HostileTest, WhatIsNoFileIsTold) {
  fs::remove(Path(1));
  ASSERT_EQ(mkfifo(Path(1).c_str(), 0600), 0);
  ExpectFault("is not a regular file");
  fs::remove(Path(1));
  fs::create_directory(Path(1));
  ExpectFault("is a directory");
  fs::remove(Path(1));
  fs::create_symlink(folder_ + "/nowhere", Path(1));
  ExpectFault("no such file");
  fs::remove(Path(1));
  fs::create_symlink(Path(1), Path(1));
  ExpectFault("cannot be read");
  if (geteuid() == 0) return;  // root reads everything
  fs::remove(Path(1));
  Write(1, Good(1));
  fs::permissions(Path(1), fs::perms::none);
  ExpectFault("cannot be read");
}

TEST_F(HostileTest, ASymlinkToAFileIsThatFile) {
  const std::string elsewhere = folder_ + "/elsewhere.safetensors";
  fs::rename(Path(1), elsewhere);
  fs::create_symlink(elsewhere, Path(1));
  const absl::StatusOr<Audit> audit = AuditCapture(folder_, {});
  ASSERT_TRUE(audit.ok()) << audit.status();
  EXPECT_EQ(audit->params.at(0).verdict.outcome, Outcome::kRight);
}

TEST_F(HostileTest, AFileThatShrinksWhileItIsReadIsTold) {
  const Step step = Step::Open(ListCapture(folder_).value()[0]).value();
  const int param = step.ParamNumber("w");
  const StoredTensor tensor = step.Find(1, param, step.KindNumber("finalized"));
  fs::resize_file(Path(1), fs::file_size(Path(1)) - 8);
  std::vector<double> values(tensor.count);
  const absl::Status status = step.file(1).Read(tensor, 0, tensor.count, values.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ends early"));
}

// A mesh that would ask for more memory than there is, two ranks at one place.
TEST_F(HostileTest, MeshesAreHeldAgainstTheWorld) {
  json metadata = MetadataOf(1, 2);
  metadata["mesh"] = R"({"dp": {"size": 2, "coordinate": 1}, "tp": {"size": 2, "coordinate": 0}})";
  Write(1, FileOf("F32", {{"finalized/w", Bytes({1})}}, 4, metadata));
  ExpectFault("has 4 places, but world_size is 2");
  metadata["mesh"] = R"({"dp": {"size": 2, "coordinate": 0}})";
  Write(1, FileOf("F32", {{"finalized/w", Bytes({1})}}, 4, metadata));
  ExpectFault("has the mesh coordinates of rank 0");
}

// Narrow types are exact where the numbers are; a wrong sum is seen in all of them.
TEST_F(HostileTest, NarrowTypesAreRead) {
  struct Narrow {
    const char* dtype;
    int bytes;
    uint32_t one, two, three, six;  // their bits
  };
  constexpr Narrow kNarrow[] = {{"BF16", 2, 0x3f80, 0x4000, 0x4040, 0x40c0},
                                {"F16", 2, 0x3c00, 0x4000, 0x4200, 0x4600},
                                {"F8_E4M3", 1, 0x38, 0x40, 0x44, 0x4c},
                                {"F8_E5M2", 1, 0x3c, 0x40, 0x42, 0x46}};
  for (const Narrow& narrow : kNarrow) {
    const auto bytes = [&](uint32_t bits) {
      std::string text;
      for (int i = 0; i < 8; ++i) text.append(reinterpret_cast<const char*>(&bits), narrow.bytes);
      return text;
    };
    for (const bool summed_twice : {false, true}) {
      for (int rank = 0; rank < 2; ++rank) {
        // The mean of 2 and 4 is 3; the contributions are 2 and 4 as 2 * 1 and 2 * 2.
        json metadata = MetadataOf(rank, 2);
        metadata["ddp"] = R"({"gradient_scaling_factor": 1})";
        Write(rank, FileOf(narrow.dtype,
                           {{"contribution/w", bytes(rank == 0 ? narrow.one : narrow.two)},
                            {"finalized/w", bytes(summed_twice ? narrow.six : narrow.three)}},
                           narrow.bytes, metadata));
      }
      const absl::StatusOr<Audit> audit = AuditCapture(folder_, {});
      ASSERT_TRUE(audit.ok()) << audit.status();
      EXPECT_EQ(audit->params.at(0).verdict.outcome,
                summed_twice ? Outcome::kWrong : Outcome::kRight)
          << narrow.dtype;
    }
  }
}

// 10,000 parameters: the table says them by kind.
TEST_F(HostileTest, TenThousandParameters) {
  for (int rank = 0; rank < 2; ++rank) {
    std::map<std::string, std::string> tensors;
    for (int i = 0; i < 10000; ++i) {
      const std::string name = "layers." + std::to_string(i) + ".w";
      tensors["contribution/" + name] = Bytes({1.0f + static_cast<float>(rank)});
      tensors["finalized/" + name] = Bytes({i == 1234 ? 2.0f : 1.5f});
    }
    Write(rank, FileOf("F32", tensors, 4, MetadataOf(rank, 2)));
  }
  const absl::StatusOr<Audit> audit = AuditCapture(folder_, {});
  ASSERT_TRUE(audit.ok()) << audit.status();
  ASSERT_THAT(audit->params, testing::SizeIs(10000));
  for (const AuditedParam& param : audit->params) {
    EXPECT_EQ(param.verdict.outcome,
              param.name == "layers.1234.w" ? Outcome::kWrong : Outcome::kRight);
  }
}

}  // namespace
}  // namespace sumonce::capture

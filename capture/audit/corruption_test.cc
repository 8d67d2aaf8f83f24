// A sound capture with one gradient changed is never reported right, whichever gradient it is, and
// a file that is missing is never silent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/safetensors.h"
#include "base/testing/search_stride.h"
#include "capture/audit/audit.h"
#include "capture/manifest.h"
#include "nlohmann/json.hpp"

namespace sumonce::capture {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> CapturesWith(bool right_only) {
  std::vector<std::string> cases;
  for (const auto& entry : fs::directory_iterator(SUMONCE_TEST_DATA "/captures")) {
    if (!entry.is_directory()) continue;
    std::ifstream file(entry.path() / "expected.json");
    const nlohmann::json expected = nlohmann::json::parse(file);
    if (!right_only || expected["parameters"].empty()) cases.push_back(entry.path().filename());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

// A copy of the capture that can be changed.
class CopyTest : public testing::TestWithParam<std::string> {
 protected:
  CopyTest() {
    std::string pattern = testing::TempDir() + "/corruption_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    fs::copy(std::string(SUMONCE_TEST_DATA "/captures/") + GetParam(), folder_,
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  ~CopyTest() override { fs::remove_all(folder_); }

  std::string folder_;
};

enum class How { kZero, kDouble, kNegate };

// One rank's finalized gradient of one parameter, in its file.
class Patch {
 public:
  Patch(const std::string& path, const SafetensorsReader& reader, const TensorInfo& info,
        const OwnedRange& owned)
      : path_(path), dtype_(info.dtype) {
    const int64_t size = SizeOf(info.dtype);
    offset_ = reader.data_offset() + info.begin + owned.begin * size;
    original_.resize((owned.end - owned.begin) * size);
    std::ifstream file(path, std::ios::binary);
    file.seekg(offset_);
    file.read(original_.data(), static_cast<std::streamsize>(original_.size()));
  }

  bool zero() const {
    return std::all_of(original_.begin(), original_.end(), [](char c) { return c == 0; });
  }

  void Apply(How how) const {
    std::string bytes = original_;
    if (dtype_ == DType::kFloat32) {
      Change<uint32_t>(bytes, how, [](uint32_t word) {
        return std::bit_cast<uint32_t>(2 * std::bit_cast<float>(word));
      });
    } else {
      Change<uint16_t>(bytes, how, [](uint16_t word) {
        return BFloat16::FromFloat(2 * BFloat16{word}.ToFloat()).bits;
      });
    }
    Write(bytes);
  }
  void Restore() const { Write(original_); }

 private:
  template <typename Word, typename Twice>
  static void Change(std::string& bytes, How how, Twice twice) {
    for (size_t at = 0; at < bytes.size(); at += sizeof(Word)) {
      Word word;
      std::memcpy(&word, bytes.data() + at, sizeof(Word));
      if (how == How::kZero) word = 0;
      if (how == How::kNegate) word ^= Word{1} << (8 * sizeof(Word) - 1);
      if (how == How::kDouble) word = twice(word);
      std::memcpy(bytes.data() + at, &word, sizeof(Word));
    }
  }
  void Write(const std::string& bytes) const {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offset_);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  std::string path_;
  DType dtype_;
  int64_t offset_ = 0;
  std::string original_;
};

class RightCaptureTest : public CopyTest {
 protected:
  // The patches of one parameter, one a rank that holds it and whose gradient is not zero.
  std::map<std::string, std::vector<Patch>> Patches(const fs::path& step) {
    std::map<std::string, std::vector<Patch>> patches;
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(step)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      const SafetensorsReader reader = SafetensorsReader::Open(file).value();
      const Manifest manifest = ParseManifest(reader.metadata(), file).value();
      for (const auto& [name, info] : reader.tensors()) {
        if (!name.starts_with("finalized/")) continue;
        const std::string param = name.substr(10);
        OwnedRange owned{.begin = 0, .end = info.count()};
        if (manifest.owned) {
          const auto range = manifest.owned->find(param);
          owned = range == manifest.owned->end() ? OwnedRange() : range->second;
        }
        Patch patch(file, reader, info, owned);
        if (!patch.zero()) patches[param].push_back(patch);
      }
    }
    return patches;
  }

  const Verdict VerdictOf(const std::string& param, const std::string& against) const {
    const absl::StatusOr<Audit> audit = AuditCapture(folder_, {.against = against, .threads = 1});
    EXPECT_TRUE(audit.ok()) << audit.status();
    for (const AuditedParam& audited : audit->params) {
      if (audited.name == param) return audited.verdict;
    }
    ADD_FAILURE() << param << " was not audited";
    return Verdict();
  }

  // `one`: one of several ranks was changed, so copies or shards do not belong together any more.
  void ExpectNotRight(const std::string& param, const std::string& what, bool one) const {
    const Verdict alone = VerdictOf(param, "");
    EXPECT_NE(alone.outcome, Outcome::kRight) << what;
    EXPECT_NE(alone.outcome, Outcome::kNoEvidence) << what;
    // Where all ranks were changed alike, another class may make it right: that is said.
    if (one || alone.possible.empty()) EXPECT_EQ(alone.outcome, Outcome::kWrong) << what;
    EXPECT_EQ(VerdictOf(param, folder_ + "/reference").outcome, Outcome::kWrong) << what;
  }
};

TEST_P(RightCaptureTest, OneChangedGradientIsNeverRight) {
  int tried = 0;
  const std::pair<How, const char*> kHows[] = {
      {How::kZero, "zero"}, {How::kDouble, "doubled"}, {How::kNegate, "negated"}};
  for (const auto& [param, patches] : Patches(folder_ + "/step-0001")) {
    for (const auto& [how, name] : kHows) {
      if (tried++ % kSearchStride != 0) continue;
      for (size_t rank = 0; rank < patches.size(); ++rank) {
        patches[rank].Apply(how);
        ExpectNotRight(param, param + " " + name + " on holder " + std::to_string(rank), true);
        patches[rank].Restore();
      }
      for (const Patch& patch : patches) patch.Apply(how);
      ExpectNotRight(param, param + " " + name + " on all", false);
      for (const Patch& patch : patches) patch.Restore();
    }
  }
  EXPECT_GT(tried, 20);
}

INSTANTIATE_TEST_SUITE_P(All, RightCaptureTest, testing::ValuesIn(CapturesWith(true)), TestName);

class MissingFileTest : public CopyTest {};

TEST_P(MissingFileTest, IsNeverSilent) {
  const fs::path step = fs::path(folder_) / "step-0001";
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(step)) files.push_back(entry.path());
  for (const fs::path& file : files) {
    fs::rename(file, file.string() + ".away");
    const absl::StatusOr<Audit> audit = AuditCapture(folder_, {});
    ASSERT_TRUE(audit.ok()) << audit.status();
    const int rank = std::stoi(file.stem().string().substr(5));
    ASSERT_THAT(audit->faults, testing::SizeIs(testing::Ge(1)));
    EXPECT_THAT(audit->faults.front(),
                testing::HasSubstr("no file of rank " + std::to_string(rank) + " of "));
    fs::rename(file.string() + ".away", file);
  }
}

INSTANTIATE_TEST_SUITE_P(All, MissingFileTest, testing::ValuesIn(CapturesWith(false)), TestName);

}  // namespace
}  // namespace sumonce::capture

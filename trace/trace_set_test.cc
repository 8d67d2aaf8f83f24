// Folders that a user may hand over: what is missing, of another job, cut off or no trace at all.
#include "trace/trace_set.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trace/prove_traces.h"
#include "trace/reader/line_source.h"

namespace sumonce::trace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A copy of the traces of a job that is right.
class TraceFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = absl::StrCat(::testing::TempDir(), "/",
                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    for (const char* name : kNames) fs::copy_file(Of("lora-replica-fixed", name), At(name));
  }
  void TearDown() override { fs::remove_all(dir_); }

  static std::string Of(const std::string& job, const std::string& name) {
    return absl::StrCat(SUMONCE_TEST_DATA "/traces/", job, "/", name);
  }
  std::string At(const std::string& name) const { return dir_ + "/" + name; }

  // Instead of the packed trace, these lines.
  void WritePlain(const std::string& name, const std::vector<std::string>& lines) {
    fs::remove(At(name + ".gz"));
    std::ofstream file(At(name));
    for (const std::string& line : lines) file << line << '\n';
  }
  std::vector<std::string> LinesOf(const std::string& name) {
    std::vector<std::string> lines;
    const auto source = LineSource::Open(At(name));
    std::string_view line;
    while (source.ok() && *(*source)->Next(line)) lines.emplace_back(line);
    return lines;
  }

  std::string Refusal() const {
    const auto set = ReadTraces(dir_);
    return set.ok() ? ProveTraces(*set).refused : std::string(set.status().message());
  }

  static constexpr const char* kNames[] = {"tp1.rank0.jsonl.gz", "tp2.rank0.jsonl.gz",
                                           "tp2.rank1.jsonl.gz", "tp4.rank0.jsonl.gz"};
  std::string dir_;
};

TEST_F(TraceFolder, IsProvedAsItIs) { EXPECT_EQ(Refusal(), ""); }

TEST_F(TraceFolder, MissingRanksAreNamed) {
  fs::remove(At("tp2.rank1.jsonl.gz"));
  EXPECT_THAT(Refusal(), HasSubstr("rank 1 of size 2 is missing"));
}

TEST_F(TraceFolder, AnotherSizeIsNoTwiceTheSize) {
  fs::rename(At("tp4.rank0.jsonl.gz"), At("tp8.rank0.jsonl.gz"));
  EXPECT_THAT(Refusal(), HasSubstr("Missing: rank 0 at tp 4"));
}

// Where lines are not packed, nothing else tells that the last ones are gone.
TEST_F(TraceFolder, AFileThatEndsEarlySaysHowMuchIsThere) {
  std::vector<std::string> lines = LinesOf("tp1.rank0.jsonl.gz");
  const size_t count = std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("{\"op\"");
  });
  lines[0].insert(1, absl::StrCat("\"operations\":", count, ","));
  WritePlain("tp1.rank0.jsonl", lines);
  EXPECT_EQ(Refusal(), "");
  lines.resize(lines.size() - 3);
  WritePlain("tp1.rank0.jsonl", lines);
  EXPECT_THAT(Refusal(),
              HasSubstr(absl::StrCat("tp1.rank0.jsonl: error: holds ", count - 3, " of its ", count,
                                     " operations; copy or trace it again")));
}

TEST_F(TraceFolder, RanksThatChangedPlacesAreTold) {
  fs::rename(At("tp2.rank0.jsonl.gz"), At("kept"));
  fs::rename(At("tp2.rank1.jsonl.gz"), At("tp2.rank0.jsonl.gz"));
  fs::rename(At("kept"), At("tp2.rank1.jsonl.gz"));
  EXPECT_THAT(Refusal(), HasSubstr("its header says size 2 and rank 1"));
}

// With the headers changed, too, each rank looks up what is the other's.
TEST_F(TraceFolder, RanksUnderEachOthersNumberProveNothing) {
  std::vector<std::string> lines[2];
  for (int r = 0; r < 2; ++r) lines[r] = LinesOf(absl::StrCat("tp2.rank", r, ".jsonl.gz"));
  std::swap(lines[0][0], lines[1][0]);
  for (int r = 0; r < 2; ++r) WritePlain(absl::StrCat("tp2.rank", r, ".jsonl"), lines[1 - r]);
  for (int r = 0; r < 2; ++r) ASSERT_THAT(lines[1 - r][0], HasSubstr(absl::StrCat("\"rank\":", r)));
  const auto set = ReadTraces(dir_);
  ASSERT_TRUE(set.ok()) << set.status();
  for (const auto& [param, proof] : ProveTraces(*set).proofs)
    EXPECT_EQ(proof.outcome, Outcome::kNoStatement) << param;
}

TEST_F(TraceFolder, TracesOfTwoJobsAreTold) {
  fs::copy_file(Of("norm-flag-missing-bug", "tp4.rank0.jsonl.gz"), At("tp4.rank0.jsonl.gz"),
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(Refusal(), HasSubstr("trace the same job at both sizes"));
}

TEST_F(TraceFolder, AnotherJobsUnshardedTraceIsTold) {
  fs::copy_file(Of("norm-flag-missing-bug", "tp1.rank0.jsonl.gz"), At("tp1.rank0.jsonl.gz"),
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(Refusal(), HasSubstr("lora_A.default.weight either: trace the same job unsharded"));
}

// A pipe that nobody writes to would be waited for without end.
TEST_F(TraceFolder, WhatIsNoFileIsNotOpened) {
  fs::remove(At("tp2.rank0.jsonl.gz"));
  ASSERT_EQ(mkfifo(At("tp2.rank0.jsonl").c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), HasSubstr("tp2.rank0.jsonl: error: is no regular file"));
}

TEST_F(TraceFolder, BytesThatAreNoTextHaveAPlace) {
  std::vector<std::string> lines = LinesOf("tp2.rank0.jsonl.gz");
  lines[3].insert(5, 1, '\0');
  WritePlain("tp2.rank0.jsonl", lines);
  EXPECT_THAT(Refusal(), HasSubstr("tp2.rank0.jsonl:4: error: no JSON at byte"));
}

}  // namespace
}  // namespace sumonce::trace

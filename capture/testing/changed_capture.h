// A captured step in memory that tests change, write anew and audit.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/safetensors.h"
#include "capture/audit/audit.h"

namespace sumonce::capture {

// One rank's file.
struct RankFileText {
  std::map<std::string, TensorToWrite> tensors;
  std::map<std::string, std::string> metadata;
};

// A capture that is written anew after a change.
class ChangedCapture {
 public:
  explicit ChangedCapture(const std::string& name) {
    std::string pattern = testing::TempDir() + "/audit_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    const std::filesystem::path source =
        std::filesystem::path(SUMONCE_TEST_DATA "/captures") / name / "step-0001";
    for (size_t rank = 0;; ++rank) {
      const std::filesystem::path path =
          source / ("rank-0000" + std::to_string(rank) + ".safetensors");
      if (!std::filesystem::exists(path)) break;
      const SafetensorsReader reader = SafetensorsReader::Open(path).value();
      RankFileText file{.metadata = reader.metadata()};
      for (const auto& [tensor, info] : reader.tensors()) {
        file.tensors[tensor] = {
            .dtype = info.dtype, .shape = info.shape, .values = reader.Read(tensor).value()};
      }
      ranks.push_back(std::move(file));
    }
  }
  ~ChangedCapture() { std::filesystem::remove_all(folder_); }

  absl::StatusOr<Audit> TryAudit(const AuditOptions& options = {}) const {
    std::filesystem::create_directories(folder_ + "/step-0001");
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const absl::Status status =
          WriteSafetensors(folder_ + "/step-0001/rank-" + std::to_string(rank) + ".safetensors",
                           ranks[rank].tensors, ranks[rank].metadata, true);
      EXPECT_TRUE(status.ok()) << status;
    }
    return AuditCapture(folder_, options);
  }

  Verdict VerdictOf(const std::string& param, const AuditOptions& options = {}) const {
    const absl::StatusOr<Audit> audit = TryAudit(options);
    EXPECT_TRUE(audit.ok()) << audit.status();
    for (const AuditedParam& audited : audit->params) {
      if (audited.name == param) return audited.verdict;
    }
    ADD_FAILURE() << "no " << param;
    return Verdict();
  }

  void Erase(const std::string& key) {
    for (RankFileText& rank : ranks) rank.metadata.erase(key);
  }
  std::vector<double>& Values(int rank, const std::string& tensor) {
    return ranks[rank].tensors.at(tensor).values;
  }
  void Scale(int rank, const std::string& param, double factor) {
    for (double& value : Values(rank, "finalized/" + param)) value *= factor;
  }
  // A parameter that is replicated over tp, its contributions summed over all ranks times 1/dp.
  void Make(const std::string& param, int64_t elements, DType dtype) {
    const RandomStream random(7, param);
    std::vector<double> sum(elements);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      TensorToWrite& in = ranks[rank].tensors["contribution/" + param];
      in = {.dtype = dtype, .shape = {elements}, .values = std::vector<double>(elements)};
      for (int64_t i = 0; i < elements; ++i) {
        in.values[i] = std::round(1024 * random.Normal(rank * elements + i));
        sum[i] += in.values[i] / 2;
      }
    }
    for (RankFileText& rank : ranks)
      rank.tensors["finalized/" + param] = {.dtype = dtype, .shape = {elements}, .values = sum};
  }

  const std::string& folder() const { return folder_; }

  std::vector<RankFileText> ranks;

 private:
  std::string folder_;
};

}  // namespace sumonce::capture

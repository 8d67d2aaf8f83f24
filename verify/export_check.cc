#include "verify/export_check.h"

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/safetensors.h"
#include "base/status.h"
#include "sim/export/peft_adapter.h"
#include "sim/simulator.h"

namespace sumonce {
namespace {

// A folder below `dir`, or a temporary one that goes with the object.
class Folder {
 public:
  Folder(const std::string& dir, const std::string& name) {
    if (!dir.empty()) {
      path_ = ExportFolder(dir, name);
      return;
    }
    std::string pattern =
        (std::filesystem::temp_directory_path() / "sumonce_export_XXXXXX").string();
    if (mkdtemp(pattern.data())) path_ = pattern;
    temporary_ = true;
  }
  ~Folder() {
    std::error_code ignored;
    if (temporary_ && !path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  bool temporary() const { return temporary_; }

 private:
  std::string path_;
  bool temporary_ = false;
};

// As stored: float32 hides differences of the last bits.
double GreatestDifference(const Tensor& a, const Tensor& b) {
  double most = 0;
  for (int64_t k = 0; k < a.count(); ++k) {
    const double difference = static_cast<double>(static_cast<float>(a.data()[k])) -
                              static_cast<double>(static_cast<float>(b.data()[k]));
    most = std::max(most, std::fabs(difference));
  }
  return most;
}

// What the tp ranks of dp rank 0 trained where several hold the same slice, against the first
// holder's copy, which is what the export takes. Empty: no two hold the same, or they agree.
std::string ReplicaEvidence(const Param& param, const Mesh& mesh, const RunRecord& record) {
  const std::vector<int> ranks = mesh.Ranks(mesh.GroupOf(Axis::kTp), 0);
  const auto weight = [&](int rank) {
    return record.ranks[rank].back().params.at(param.name).weight_after;
  };
  std::map<std::vector<int64_t>, int> first_holders;  // of a slice
  std::vector<std::string> differing;
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i) {
    const auto [holder, is_first] =
        first_holders.try_emplace(param.shards.GlobalIndices(mesh, ranks[i]), i);
    if (is_first) continue;
    const double difference = GreatestDifference(weight(ranks[holder->second]), weight(ranks[i]));
    if (difference == 0) continue;
    const std::string other =
        holder->second > 0 ? absl::StrCat(" from rank ", holder->second, "'s") : "";
    differing.push_back(absl::StrCat("rank ", i, other, " by up to ", difference));
  }
  if (differing.empty()) return "";
  return absl::StrCat("EXPORT_DIFFERS: the exported is rank ",
                      first_holders.size() == 1 ? "0's copy" : "0's copy, or the first holder's",
                      "; trained copies differ from it: ", absl::StrJoin(differing, ", "));
}

absl::Status SameAsWritten(const std::map<std::string, TensorToWrite>& written,
                           const SafetensorsReader& file) {
  for (const auto& [name, tensor] : written) {
    SUMONCE_ASSIGN_OR_RETURN(const std::vector<double> values, file.Read(name));
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != static_cast<double>(static_cast<float>(tensor.values[i]))) {
        return absl::DataLossError(
            absl::StrCat(file.path(), ": ", name, " element ", i, " reads ", values[i]));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status WriteAndReadBack(const Scenario& scenario, const RunRecord& record,
                              const std::string& dir, bool overwrite,
                              std::vector<std::string>& notes) {
  SUMONCE_RETURN_IF_ERROR(ExportAdapter(scenario, record, dir, overwrite));
  SUMONCE_ASSIGN_OR_RETURN(const SafetensorsReader file,
                           SafetensorsReader::Open(dir + "/adapter_model.safetensors"));
  SUMONCE_RETURN_IF_ERROR(SameAsWritten(AdapterTensors(scenario, record), file));
  for (const auto& [name, info] : file.tensors()) {
    SUMONCE_ASSIGN_OR_RETURN(const std::vector<double> values, file.Read(name));
    if (std::all_of(values.begin(), values.end(), [](double value) { return value == 0; })) {
      notes.push_back(absl::StrCat("exported tensor ", name, " is all zero"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string ExportFolder(const std::string& dir, const std::string& name) {
  std::string leaf = name;
  std::replace(leaf.begin(), leaf.end(), '/', '_');
  return dir + "/" + leaf;
}

ExportCheck CheckExported(const Scenario& scenario, const RunRecord& record, const std::string& dir,
                          bool overwrite, const std::string& name) {
  ExportCheck check;
  const Folder folder(dir, name);
  if (folder.path().empty()) {
    check.status = absl::UnavailableError("no temporary folder can be made for the export");
    return check;
  }
  check.status = WriteAndReadBack(scenario, record, folder.path(), overwrite, check.notes);
  if (!folder.temporary() && check.status.ok())
    check.notes.push_back(absl::StrCat("adapter exported to ", folder.path()));
  const Mesh mesh = *Mesh::Create(scenario.mesh);
  Model model(EffectiveModel(scenario));
  for (const Param& param : model.params().all()) {
    if (!param.requires_grad) continue;
    if (!param.name.ends_with(".lora_A") && !param.name.ends_with(".lora_B") &&
        !param.name.ends_with(".lora_B_bias"))
      continue;
    const std::string evidence = ReplicaEvidence(param, mesh, record);
    if (!evidence.empty()) check.differs[param.name] = evidence;
  }
  return check;
}

}  // namespace sumonce

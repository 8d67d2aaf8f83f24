#include "verify/export_check.h"

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

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

// What each tp rank of dp rank 0 trained, against rank 0's copy, which is what the export holds of
// a replicated factor.
std::string ReplicaEvidence(const Param& param, const Mesh& mesh, const RunRecord& record) {
  const std::vector<int> ranks = mesh.Ranks(mesh.GroupOf(Axis::kTp), 0);
  const auto weight = [&](int rank) {
    return record.ranks[rank].back().params.at(param.name).weight_after;
  };
  const Tensor first = weight(ranks[0]);
  std::vector<std::string> differing;
  for (size_t i = 1; i < ranks.size(); ++i) {
    const Tensor other = weight(ranks[i]);
    double diff_abs_max = 0;
    for (int64_t k = 0; k < first.count(); ++k) {
      // As stored: float32 hides differences of the last bits.
      const float a = static_cast<float>(first.data()[k]);
      const float b = static_cast<float>(other.data()[k]);
      diff_abs_max =
          std::max(diff_abs_max, std::fabs(static_cast<double>(a) - static_cast<double>(b)));
    }
    if (diff_abs_max > 0) differing.push_back(absl::StrCat("rank ", i, " by up to ", diff_abs_max));
  }
  if (differing.empty()) return "";
  return absl::StrCat(
      "EXPORT_DIFFERS: the exported is rank 0's copy; trained copies differ from it: ",
      absl::StrJoin(differing, ", "));
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
    if (!param.requires_grad || param.shards.CutBy(Axis::kTp)) continue;
    if (!param.name.ends_with(".lora_A") && !param.name.ends_with(".lora_B") &&
        !param.name.ends_with(".lora_B_bias"))
      continue;
    const std::string evidence = ReplicaEvidence(param, mesh, record);
    if (!evidence.empty()) check.differs[param.name] = evidence;
  }
  return check;
}

}  // namespace sumonce

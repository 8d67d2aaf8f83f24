#include "capture/write/save_run.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/safetensors.h"
#include "base/status.h"
#include "capture/write/run_manifest.h"

namespace sumonce::capture {
namespace {

namespace fs = std::filesystem;

std::string PathOf(const std::string& dir, int step, int rank) {
  return absl::StrFormat("%s/step-%04d/rank-%05d.safetensors", dir, step, rank);
}

absl::Status MakeFolderOf(const std::string& path) {
  std::error_code error;
  const std::string folder = fs::path(path).parent_path().string();
  fs::create_directories(folder, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(folder, ": cannot be made"));
  return absl::OkStatus();
}

TensorToWrite Stored(const Tensor& tensor, DType dtype) {
  TensorToWrite stored{.dtype = dtype, .shape = {}, .values = {}};
  for (const DimExtent& dim : tensor.dims()) stored.shape.push_back(dim.extent());
  stored.values.assign(tensor.values().begin(), tensor.values().end());
  return stored;
}

using Tensors = std::map<std::string, TensorToWrite>;

// Everything that the record holds of a trained parameter.
void AddParam(const std::string& name, const ParamRecord& param, const PrecisionConfig& precision,
              bool last, Tensors& tensors) {
  const auto add = [&](const std::string& kind, const Tensor& tensor, DType dtype) {
    if (!tensor.empty()) tensors[absl::StrCat(kind, "/", name)] = Stored(tensor, dtype);
  };
  add("contribution", param.contribution, precision.main_grad_dtype());
  add("finalized", param.finalized(), precision.main_grad_dtype());
  add("weight", param.weight_before, precision.weight_dtype());
  if (last) add("weight_after", param.weight_after, precision.weight_dtype());
  for (size_t m = 0; m < param.terms.size(); ++m)
    add(absl::StrCat("contribution@", m), param.terms[m], precision.grad_dtype());
  // Uses are numbered in the order of their names, which hold slashes.
  int use = 0;
  for (const auto& [operation, gradient] : param.uses)
    add(absl::StrCat("use@", use++), gradient, DType::kFloat64);
}

class RunSaver {
 public:
  RunSaver(const SavedRun& run, const std::string& dir, bool overwrite)
      : run_(run), dir_(dir), overwrite_(overwrite), mesh_(*Mesh::Create(run.scenario->mesh)) {}

  absl::Status Save() {
    if (run_.record->ranks.empty() || run_.record->ranks[0].empty())
      return absl::InvalidArgumentError(absl::StrCat(run_.name, ": ends without a gradient"));
    SUMONCE_RETURN_IF_ERROR(CheckAbsent());
    for (size_t i = 0; i < steps(); ++i) {
      for (int rank = 0; rank < mesh_.world_size(); ++rank)
        SUMONCE_RETURN_IF_ERROR(SaveRank(i, rank));
    }
    return SaveReferences();
  }

 private:
  size_t steps() const { return run_.record->ranks[0].size(); }
  std::string reference_dir() const { return dir_ + "/reference"; }

  // Half a capture beside another's other half would be worse than none.
  absl::Status CheckAbsent() const {
    if (overwrite_) return absl::OkStatus();
    std::error_code error;
    if (!fs::exists(dir_, error)) return absl::OkStatus();
    for (fs::directory_iterator entry(dir_, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with("step-") || name == "reference") {
        return absl::AlreadyExistsError(
            absl::StrCat(entry->path().string(), " exists; --force writes over it"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status SaveRank(size_t index, int rank) const {
    const StepRecord& record = run_.record->ranks[rank][index];
    Tensors tensors;
    for (const auto& [name, param] : record.params) {
      if (!param.contribution.empty())
        AddParam(name, param, run_.scenario->precision, index + 1 == steps(), tensors);
    }
    const std::string path = PathOf(dir_, record.step, rank);
    SUMONCE_RETURN_IF_ERROR(MakeFolderOf(path));
    return WriteSafetensors(
        path, tensors, RunMetadata(*run_.scenario, mesh_, rank, record, run_.name), overwrite_);
  }

  // As a run is compared: each step from its own weights, while replicas are equal.
  absl::Status SaveReferences() const {
    for (size_t i = 0; i < steps(); ++i) {
      const Assembled assembled = AssembleWeights(*run_.scenario, *run_.record, i);
      if (!assembled.drifted.empty()) return absl::OkStatus();
      const int step = run_.record->ranks[0][i].step;
      const SimResult reference =
          SimulateReference(*run_.scenario, assembled.weights, step, 1, SimOptions());
      SUMONCE_RETURN_IF_ERROR(reference.status);
      StepRecord record = reference.record.ranks[0][0];
      record.step = step;
      Tensors tensors;
      for (const auto& [name, param] : record.params) {
        if (!param.contribution.empty())
          tensors[absl::StrCat("finalized/", name)] = Stored(param.finalized(), DType::kFloat64);
      }
      Scenario unsharded = *run_.scenario;
      unsharded.mesh = MeshSizes();
      const std::string path = PathOf(reference_dir(), step, 0);
      SUMONCE_RETURN_IF_ERROR(MakeFolderOf(path));
      SUMONCE_RETURN_IF_ERROR(WriteSafetensors(
          path, tensors,
          RunMetadata(unsharded, *Mesh::Create(unsharded.mesh), 0, record, run_.name), overwrite_));
    }
    return absl::OkStatus();
  }

  const SavedRun& run_;
  const std::string& dir_;
  bool overwrite_;
  Mesh mesh_;
};

}  // namespace

absl::Status SaveRun(const SavedRun& run, const std::string& dir, bool overwrite) {
  const PrecisionConfig& precision = run.scenario->precision;
  if (precision.grad_dtype() != precision.main_grad_dtype()) {
    return absl::UnimplementedError(
        absl::StrCat(run.name, ": gradients are ", ToAbsl(Name(precision.grad_dtype())),
                     " and main_grad is ", ToAbsl(Name(precision.main_grad_dtype())),
                     ": the format of a capture (version 1) does not say that they were rounded "
                     "before they were "
                     "added up; expected one type, take grad_reduce_in_fp32 out"));
  }
  const Mesh mesh = *Mesh::Create(run.scenario->mesh);
  Model model(EffectiveModel(*run.scenario));
  for (const Param& param : model.params().all()) {
    if (param.shards.CutBy(Axis::kKv) && mesh.size(Axis::kKv) < mesh.size(Axis::kTp))
      return absl::UnimplementedError(
          absl::StrCat(param.name, ": ", mesh.size(Axis::kTp) / mesh.size(Axis::kKv),
                       " ranks of tp hold the same slice, which the layout of a capture (version "
                       "1) cannot say; expected key-value groups that tp divides"));
  }
  return RunSaver(run, dir, overwrite).Save();
}

}  // namespace sumonce::capture

// Weights and data from safetensors files: there, readable, complete and of the model's shapes.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/safetensors.h"
#include "base/status.h"
#include "sim/data.h"
#include "sim/hf_weights.h"
#include "sim/reader/reading.h"
#include "sim/weights.h"

namespace sumonce {
namespace {

std::string Shape(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::vector<int64_t> ShapeOf(const Dims& dims) {
  std::vector<int64_t> shape;
  for (const DimExtent& dim : dims) shape.push_back(dim.extent());
  return shape;
}

int64_t CountOf(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

// A file under this model's own names: every tensor is compared, not only the first wrong one.
void CheckCheckpoint(const Block& model, const SafetensorsReader& file, const ParamStore& params) {
  std::vector<std::string> there;
  for (const auto& [name, info] : file.tensors()) there.push_back(name);
  for (const Param& param : params.all()) {
    const std::vector<int64_t> wanted = ShapeOf(param.shards.whole());
    const auto found = file.tensors().find(param.name);
    if (found == file.tensors().end()) {
      model.Add("weights_file",
                absl::StrCat(file.path(), " has no tensor ", param.name, ", expected one of shape ",
                             Shape(wanted), DidYouMean(param.name, there)));
    } else if (found->second.count() != CountOf(wanted)) {
      model.Add(
          "weights_file",
          absl::StrCat(file.path(), ": ", param.name, " has the shape ", Shape(found->second.shape),
                       ", expected ", Shape(wanted), "; change the model's sizes or the file"));
    }
  }
}

void CheckWeights(const Block& model, const Reading& reading) {
  const Scenario& scenario = reading.scenario;
  if (scenario.weights_file.empty()) return;
  const auto file = SafetensorsReader::Open(scenario.weights_file);
  if (!file.ok()) {
    model.Add("weights_file", absl::StrCat("weights_file: ", file.status().message()));
    return;
  }
  Model built(ModelOnMesh(scenario));
  if (!HasHfNames(*file)) return CheckCheckpoint(model, *file, built.params());
  const auto weights = StartWeights(scenario, built.params());
  if (!weights.ok()) {
    model.Add("weights_file", absl::StrCat("weights_file: ", weights.status().message()));
  }
}

void CheckData(const Block& data, Reading& reading) {
  const absl::Status status = UseRotaryTables(reading.scenario);
  if (!status.ok()) data.Add("from_file", absl::StrCat("from_file: ", status.message()));
}

}  // namespace

void CheckFiles(const Block& root, Reading& reading) {
  CheckWeights(root.Child("model"), reading);
  CheckData(root.Child("data"), reading);
}

}  // namespace sumonce

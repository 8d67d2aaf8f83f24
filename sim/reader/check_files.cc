// Weights and data from safetensors files: there, readable, complete and of the model's shapes.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/safetensors.h"
#include "base/status.h"
#include "sim/data.h"
#include "sim/hf_weights.h"
#include "sim/reader/reading.h"
#include "sim/simulator.h"
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

// Whether `shape` is `dims` with neighbours taken together: [16, 32] holds [16, 4, 8].
bool Holds(const std::vector<int64_t>& shape, const std::vector<int64_t>& dims) {
  size_t at = 0;
  for (const int64_t extent : shape) {
    int64_t product = 1;
    while (at < dims.size() && product < extent) product *= dims[at++];
    if (product != extent) return false;
  }
  return std::all_of(dims.begin() + static_cast<std::ptrdiff_t>(at), dims.end(),
                     [](int64_t extent) { return extent == 1; });
}

// A file under this model's own names: every tensor is compared, not only the first wrong one.
// Whether each has its place and shape.
bool CheckCheckpoint(const Block& model, const SafetensorsReader& file, const ParamStore& params) {
  std::vector<std::string> there;
  for (const auto& [name, info] : file.tensors()) there.push_back(name);
  bool all_fit = true;
  for (const Param& param : params.all()) {
    const std::vector<int64_t> wanted = ShapeOf(param.shards.whole());
    const auto found = file.tensors().find(param.name);
    if (found != file.tensors().end() && Holds(found->second.shape, wanted)) continue;
    all_fit = false;
    if (found == file.tensors().end()) {
      model.Add("weights_file",
                absl::StrCat(file.path(), " has no tensor ", param.name, ", expected one of shape ",
                             Shape(wanted), DidYouMean(param.name, there)));
    } else {
      model.Add(
          "weights_file",
          absl::StrCat(file.path(), ": ", param.name, " has the shape ", Shape(found->second.shape),
                       ", expected ", Shape(wanted), "; change the model's sizes or the file"));
    }
  }
  return all_fit;
}

void CheckWeights(const Block& model, const SafetensorsReader& file, const Scenario& scenario) {
  Model built(EffectiveModel(scenario));
  if (!HasHfNames(file) && !CheckCheckpoint(model, file, built.params())) return;
  const auto weights = StartWeights(scenario, built.params());
  if (!weights.ok()) {
    model.Add("weights_file", absl::StrCat("weights_file: ", weights.status().message()));
  }
}

// Reads the data once, and hands its rotary tables to the attention layers.
void CheckData(const Block& data, Scenario& scenario) {
  const absl::Status status = UseRotaryTables(scenario);
  if (!status.ok()) data.Add("from_file", absl::StrCat("from_file: ", status.message()));
}

// Null with a mistake if the file cannot be read.
std::optional<SafetensorsReader> Open(const Block& block, const char* field,
                                      const std::string& path) {
  if (path.empty()) return std::nullopt;
  auto file = SafetensorsReader::Open(path);
  if (file.ok()) return *std::move(file);
  const char* cure =
      absl::IsNotFound(file.status())
          ? ", expected a safetensors file; paths are relative to the scenario's folder"
          : "";
  block.Add(field, absl::StrCat(field, ": ", file.status().message(), cure));
  return std::nullopt;
}

}  // namespace

void CheckFiles(const Block& root, Reading& reading) {
  Scenario& scenario = reading.scenario;
  // A model that is wrong itself would be compared with the right file.
  const bool sound = reading.mistakes->empty();
  const Block model = root.Child("model");
  const Block data = root.Child("data");
  const auto weights = Open(model, "weights_file", scenario.weights_file);
  const auto tokens = Open(data, "from_file", scenario.data.from_file);
  if (weights && sound) CheckWeights(model, *weights, scenario);
  if (tokens && sound) CheckData(data, scenario);
}

}  // namespace sumonce

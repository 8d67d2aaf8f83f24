#include "sim/weights.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/math.h"
#include "base/random.h"
#include "base/safetensors.h"
#include "base/status.h"
#include "sim/hf_weights.h"

namespace sumonce {
namespace {

double Draw(const Init& init, const RandomStream& stream, uint64_t index) {
  switch (init.kind) {
    case Init::Kind::kNormal:
      return init.shift + init.scale * stream.Normal(index);
    case Init::Kind::kUniform:
      return init.shift + init.scale * (2 * stream.Uniform(index) - 1);
    case Init::Kind::kZero:
      return init.shift;
    case Init::Kind::kOne:
      return 1 + init.shift;
    case Init::Kind::kLogUniform:
      return init.shift + Log(init.scale + (init.limit - init.scale) * stream.Uniform(index));
  }
  return 0;
}

// Exact mode: small integers wherever a random number would stand.
double DrawInteger(const Init& init, const RandomStream& stream, uint64_t index) {
  if (init.kind == Init::Kind::kZero) return 0;
  if (init.kind == Init::Kind::kOne) return 1;
  return static_cast<double>(stream.Integer(index, -2, 2));
}

Tensor RandomWeight(const Scenario& scenario, const Param& param) {
  Tensor weight(param.shards.whole());
  const RandomStream stream(scenario.seed, param.name);
  for (int64_t i = 0; i < weight.count(); ++i) {
    weight.data()[i] = scenario.data.fill == Fill::kExact ? DrawInteger(param.init, stream, i)
                                                          : Draw(param.init, stream, i);
  }
  return weight;
}

std::vector<int64_t> ShapeOf(const Dims& dims) {
  std::vector<int64_t> shape;
  for (const DimExtent& dim : dims) shape.push_back(dim.extent());
  return shape;
}

absl::StatusOr<Weights> FromCheckpoint(const SafetensorsReader& file, const ParamStore& params) {
  Weights weights;
  for (const Param& param : params.all()) {
    const Dims& dims = param.shards.whole();
    SUMONCE_ASSIGN_OR_RETURN(std::vector<double> values, file.Read(param.name));
    if (static_cast<int64_t>(values.size()) != Count(dims)) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), ": ", param.name, " has the shape [",
                       absl::StrJoin(file.tensors().at(param.name).shape, ", "),
                       "], the scenario's model [", absl::StrJoin(ShapeOf(dims), ", "), "]"));
    }
    weights[param.name] = Tensor(dims, std::move(values));
  }
  return weights;
}

// Weights that are no numbers would make every gradient none, and every comparison a fault.
absl::Status CheckFinite(const std::string& path, const Weights& weights) {
  for (const auto& [name, weight] : weights) {
    for (int64_t i = 0; i < weight.count(); ++i) {
      const double value = weight.data()[i];
      if (std::isfinite(value)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", name, " has ", value, " at [",
                       absl::StrJoin(IndexOf(ShapeOf(weight.dims()), i), ", "),
                       "], expected finite numbers; take a checkpoint from before they appeared"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Weights> StartWeights(const Scenario& scenario, const ParamStore& params) {
  if (!scenario.weights_file.empty()) {
    SUMONCE_ASSIGN_OR_RETURN(const SafetensorsReader file,
                             SafetensorsReader::Open(scenario.weights_file));
    SUMONCE_ASSIGN_OR_RETURN(Weights weights, HasHfNames(file)
                                                  ? ImportHfWeights(scenario, file, params)
                                                  : FromCheckpoint(file, params));
    SUMONCE_RETURN_IF_ERROR(CheckFinite(file.path(), weights));
    return weights;
  }
  Weights weights;
  for (const Param& param : params.all()) weights[param.name] = RandomWeight(scenario, param);
  return weights;
}

void LoadWeights(const Weights& weights, const Mesh& mesh, int rank, ParamStore& params) {
  for (Param& param : params.all()) {
    const auto found = weights.find(param.name);
    SUMONCE_CHECK(found != weights.end()) << param.name << " has no start weight";
    param.weight = param.shards.Slice(found->second, mesh, rank);
    if (param.requires_grad) param.main_grad = Tensor(param.weight.dims());
  }
}

}  // namespace sumonce

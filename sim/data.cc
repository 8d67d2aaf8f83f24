#include "sim/data.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "base/safetensors.h"
#include "base/status.h"

namespace sumonce {
namespace {

Dims TokenDims(const Scenario& scenario) {
  return {Plain(Dim::kSequence, scenario.data.sequence),
          Plain(Dim::kBatch, scenario.data.micro_batch * scenario.mesh.dp)};
}

std::string Prefix(int step, int microbatch) {
  return absl::StrCat("data.step", step, ".microbatch", microbatch, ".");
}

bool Counts(const DataConfig& data, int64_t position) {
  if (data.loss_on.empty()) return true;
  for (const DataConfig::Span& span : data.loss_on) {
    const double length = static_cast<double>(data.sequence);
    if (position >= std::llround(span.from * length) && position < std::llround(span.to * length))
      return true;
  }
  return false;
}

// ids: [s, b] -> [s, b, v].
Tensor OneHot(const Tensor& ids, int64_t vocab) {
  Dims dims = ids.dims();
  dims.push_back(Plain(Dim::kVocab, vocab));
  Tensor one_hot(dims);
  for (int64_t i = 0; i < ids.count(); ++i)
    one_hot.data()[i * vocab + static_cast<int64_t>(ids.data()[i])] = 1.0;
  return one_hot;
}

Tensor RandomIds(const Scenario& scenario, const std::string& name, const Dims& dims) {
  const RandomStream stream(scenario.seed, name);
  Tensor ids(dims);
  for (int64_t i = 0; i < ids.count(); ++i) {
    ids.data()[i] = static_cast<double>(stream.Integer(i, 0, scenario.model.vocab - 1));
  }
  return ids;
}

Tensor Mask(const Scenario& scenario, const Dims& dims) {
  Tensor mask(dims);
  const int64_t batch = dims[1].extent();
  for (int64_t i = 0; i < mask.count(); ++i)
    mask.data()[i] = Counts(scenario.data, i / batch) ? 1.0 : 0.0;
  return mask;
}

double Sum(const Tensor& tensor) {
  double sum = 0;
  for (double value : tensor.values()) sum += value;
  return sum;
}

// Each dp rank's cell divides by its own count and by the number of cells.
void DivideByCells(const Scenario& scenario, Tensor& mask) {
  const int64_t batch = mask.dims()[1].extent();
  const int64_t per_rank = batch / scenario.mesh.dp;
  const double cells = static_cast<double>(scenario.mesh.dp) * scenario.data.microbatches;
  for (int rank = 0; rank < scenario.mesh.dp; ++rank) {
    double count = 0;
    for (int64_t i = 0; i < mask.count(); ++i)
      count += (i % batch) / per_rank == rank ? mask.data()[i] : 0.0;
    for (int64_t i = 0; i < mask.count(); ++i) {
      if ((i % batch) / per_rank == rank) mask.data()[i] /= std::max(count, 1.0) * cells;
    }
  }
}

Tensor Probe(const Scenario& scenario, const std::string& name, const Dims& tokens) {
  Dims dims = tokens;
  dims.push_back(Plain(Dim::kHidden, scenario.model.hidden));
  Tensor probe(dims);
  const RandomStream stream(scenario.seed, name);
  for (int64_t i = 0; i < probe.count(); ++i) {
    probe.data()[i] = scenario.data.fill == Fill::kExact
                          ? static_cast<double>(stream.Integer(i, -2, 2))
                          : stream.Normal(i);
  }
  return probe;
}

Microbatch Generate(const Scenario& scenario, int step, int index) {
  const std::string prefix = Prefix(step, index);
  const Dims dims = TokenDims(scenario);
  Microbatch microbatch;
  microbatch.tokens_one_hot =
      OneHot(RandomIds(scenario, prefix + "tokens", dims), scenario.model.vocab);
  microbatch.targets_one_hot =
      OneHot(RandomIds(scenario, prefix + "targets", dims), scenario.model.vocab);
  microbatch.loss_weights = Mask(scenario, dims);
  microbatch.num_tokens = Sum(microbatch.loss_weights);
  if (scenario.model.head == Head::kProbe)
    microbatch.probe = Probe(scenario, prefix + "probe", dims);
  return microbatch;
}

// [B, T] of the file -> [s, b].
Tensor Transposed(const std::vector<double>& values, const Dims& dims) {
  const int64_t sequence = dims[0].extent();
  const int64_t batch = dims[1].extent();
  Tensor tensor(dims);
  for (int64_t s = 0; s < sequence; ++s) {
    for (int64_t b = 0; b < batch; ++b) tensor.data()[s * batch + b] = values[b * sequence + s];
  }
  return tensor;
}

absl::StatusOr<Tensor> Table(const SafetensorsReader& file, const std::string& name,
                             int64_t sequence) {
  if (!file.tensors().contains(name)) return Tensor();
  const std::vector<int64_t>& shape = file.tensors().at(name).shape;
  if (shape.size() != 2 || shape[0] < sequence) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": ", name, " has the shape [", absl::StrJoin(shape, ", "),
                     "], expected [at least ", sequence, ", rotary_dim]"));
  }
  SUMONCE_ASSIGN_OR_RETURN(std::vector<double> values, file.Read(name));
  return Tensor({Plain(Dim::kSequence, shape[0]), Plain(Dim::kHeadDim, shape[1])},
                std::move(values));
}

absl::StatusOr<Microbatch> FromFile(const Scenario& scenario) {
  SUMONCE_ASSIGN_OR_RETURN(const SafetensorsReader file,
                           SafetensorsReader::Open(scenario.data.from_file));
  const Dims dims = TokenDims(scenario);
  Microbatch microbatch;
  for (auto [name, to] : {std::pair{"in.tokens", &microbatch.tokens_one_hot},
                          {"in.targets", &microbatch.targets_one_hot}}) {
    SUMONCE_ASSIGN_OR_RETURN(const std::vector<double> ids, file.Read(name));
    if (static_cast<int64_t>(ids.size()) != Count(dims)) {
      return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", name, " has ", ids.size(),
                                                     " entries, the scenario ", Count(dims), " = ",
                                                     Describe(dims)));
    }
    for (double id : ids) {
      if (id < 0 || id >= static_cast<double>(scenario.model.vocab) || id != std::floor(id)) {
        return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", name, " holds ", id,
                                                       ", expected an id of the vocabulary 0..",
                                                       scenario.model.vocab - 1));
      }
    }
    *to = OneHot(Transposed(ids, dims), scenario.model.vocab);
  }
  SUMONCE_ASSIGN_OR_RETURN(const std::vector<double> mask, file.Read("in.loss_mask"));
  if (static_cast<int64_t>(mask.size()) != Count(dims)) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": in.loss_mask has ", mask.size(),
                                                   " entries, expected ", Count(dims)));
  }
  microbatch.loss_weights = Transposed(mask, dims);
  microbatch.num_tokens = Sum(microbatch.loss_weights);
  SUMONCE_ASSIGN_OR_RETURN(microbatch.cos, Table(file, "in.cos", scenario.data.sequence));
  SUMONCE_ASSIGN_OR_RETURN(microbatch.sin, Table(file, "in.sin", scenario.data.sequence));
  return microbatch;
}

}  // namespace

absl::StatusOr<std::vector<Microbatch>> MakeData(const Scenario& scenario, int step) {
  std::vector<Microbatch> microbatches;
  for (int index = 0; index < scenario.data.microbatches; ++index) {
    if (scenario.data.from_file.empty()) {
      microbatches.push_back(Generate(scenario, step, index));
    } else {
      SUMONCE_ASSIGN_OR_RETURN(Microbatch microbatch, FromFile(scenario));
      microbatches.push_back(std::move(microbatch));
    }
    Microbatch& microbatch = microbatches.back();
    microbatch.sequence_starts = StartsOf(scenario.data);
    microbatch.name = Prefix(step, index);
    microbatch.seed = scenario.seed;
    microbatch.dropout = scenario.model.common.lora.dropout;
    if (scenario.loss == LossMode::kMeanOfCells) DivideByCells(scenario, microbatch.loss_weights);
  }
  return microbatches;
}

SequenceStarts StartsOf(const DataConfig& data) {
  SequenceStarts starts;
  int64_t begin = 0;
  for (const int64_t length : data.packed) {
    starts.push_back(begin);
    begin += length;
  }
  return starts;
}

absl::Status UseRotaryTables(Scenario& scenario) {
  if (scenario.data.from_file.empty()) return absl::OkStatus();
  SUMONCE_ASSIGN_OR_RETURN(const std::vector<Microbatch> data, MakeData(scenario, 1));
  const Tensor& cos = data[0].cos;
  const Tensor& sin = data[0].sin;
  if (cos.empty() || sin.empty()) return absl::OkStatus();
  for (DecoderLayerConfig& layer : scenario.model.layers) {
    auto* attention = std::get_if<SelfAttentionConfig>(&layer.mixer);
    if (!attention || attention->rope.rotary_dim == 0) continue;
    if (cos.dims()[1].extent() != attention->rope.rotary_dim || cos.count() != sin.count()) {
      return absl::InvalidArgumentError(absl::StrCat(
          scenario.data.from_file, ": in.cos and in.sin have ", cos.dims()[1].extent(), " and ",
          sin.dims()[1].extent(), " columns, expected rotary_dim = ", attention->rope.rotary_dim));
    }
    attention->rope.cos.assign(cos.values().begin(), cos.values().end());
    attention->rope.sin.assign(sin.values().begin(), sin.values().end());
  }
  return absl::OkStatus();
}

BatchInputs InputsOf(const Microbatch& microbatch) {
  BatchInputs inputs;
  inputs.tokens_one_hot = &microbatch.tokens_one_hot;
  inputs.targets_one_hot = &microbatch.targets_one_hot;
  inputs.loss_weights = &microbatch.loss_weights;
  inputs.probe = &microbatch.probe;
  inputs.sequence = microbatch.loss_weights.dims()[0].extent();
  inputs.batch = microbatch.loss_weights.dims()[1].extent();
  inputs.sequence_starts = microbatch.sequence_starts;
  if (microbatch.dropout > 0) {
    inputs.keeps = [&microbatch](const std::string& module, int64_t index) {
      const RandomStream stream(microbatch.seed, microbatch.name + module + ".lora_dropout");
      return stream.Uniform(index) >= microbatch.dropout;
    };
  }
  return inputs;
}

Scale LossScale(const Scenario& scenario, const Mesh& mesh) {
  if (scenario.loss == LossMode::kPerToken) return Scale();
  return Scale::SizeOfGroup(mesh.GroupOf(Axis::kDp));
}

}  // namespace sumonce

#include "layers/testing/fused.h"

#include <algorithm>
#include <numeric>

#include "base/status.h"

namespace sumonce::testing {
namespace {

Tensor Zeros(int64_t rows, int64_t columns) {
  return Tensor({Plain(Dim::kOut, rows), Plain(Dim::kIn, columns)});
}
int64_t RowCount(const Tensor& matrix) { return matrix.dims()[0].extent(); }
int64_t ColumnCount(const Tensor& matrix) { return matrix.count() / RowCount(matrix); }

// to[rows_to[i], column_to + c] = from[rows_from[i], column_from + c]
void CopyBlock(const Tensor& from, const std::vector<int64_t>& rows_from, int64_t column_from,
               Tensor& to, const std::vector<int64_t>& rows_to, int64_t column_to,
               int64_t columns) {
  for (size_t i = 0; i < rows_from.size(); ++i) {
    SUMONCE_CHECK(rows_from[i] < RowCount(from) && rows_to[i] < RowCount(to)) << "row " << i;
    const double* source = from.data() + rows_from[i] * ColumnCount(from) + column_from;
    std::copy_n(source, columns, to.data() + rows_to[i] * ColumnCount(to) + column_to);
  }
}

// A result is asked for to compare with it.
Tensor Stored(const Golden& golden, const std::string& name, const Dims& dims,
              const Axes& axes = kAsStored) {
  const bool result = name.starts_with("out.") || name.starts_with("grad.");
  return result ? golden.Expected(name, dims, axes) : golden.Get(name, dims, axes);
}

std::string WeightName(const Golden& golden, const std::string& projection) {
  return golden.Has(projection + ".weight") ? projection + ".weight" : projection;
}

int64_t RankOf(const Golden& golden, const std::string& projection) {
  const std::string name = projection + ".lora_A";
  return golden.Has(name) ? golden.Shape(name)[0] : 0;
}

int64_t FusedRows(const FusedLinear& linear) {
  int64_t rows = 0;
  for (const Projection& projection : linear.projections) rows += projection.rows.size();
  return rows;
}

void LoadLinear(const Golden& golden, const FusedLinear& linear, int64_t r, Weights& weights) {
  const int64_t rows = FusedRows(linear);
  const std::string& first = linear.projections[0].golden;
  const int64_t in = ColumnCount(Matrix(golden, WeightName(golden, first)));
  Tensor weight = Zeros(rows, in), lora_A = Zeros(std::max<int64_t>(r, 1), in),
         lora_B = Zeros(rows, std::max<int64_t>(r, 1));
  int64_t at = 0;
  for (const auto& [name, places] : linear.projections) {
    const std::vector<int64_t> all = Range(0, places.size());
    CopyBlock(Matrix(golden, WeightName(golden, name)), all, 0, weight, places, 0, in);
    const int64_t rank = RankOf(golden, name);
    if (rank == 0) continue;
    CopyBlock(Matrix(golden, name + ".lora_A"), Range(0, rank), 0, lora_A, Range(at, rank), 0, in);
    CopyBlock(Matrix(golden, name + ".lora_B"), all, 0, lora_B, places, at, rank);
    at += rank;
  }
  weights[linear.module + ".weight"] = weight;
  if (r == 0) return;
  weights[linear.module + ".lora_A"] = lora_A;
  weights[linear.module + ".lora_B"] = lora_B;
}

Tensor AsMatrix(const Tensor& tensor, int64_t rows) {
  return tensor.WithDims({Plain(Dim::kOut, rows), Plain(Dim::kIn, tensor.count() / rows)});
}

void ExpectLinear(const Golden& golden, const FusedLinear& linear, int64_t r,
                  const std::function<Tensor(const std::string&)>& gradient) {
  const int64_t rows = FusedRows(linear);
  Tensor weight = gradient(linear.module + ".weight"), lora_A, lora_B;
  if (r > 0) lora_A = gradient(linear.module + ".lora_A");
  if (r > 0) lora_B = gradient(linear.module + ".lora_B");
  if (weight.empty() || (r > 0 && (lora_A.empty() || lora_B.empty()))) {
    ADD_FAILURE() << linear.module << " has no gradient";
    return;
  }
  weight = AsMatrix(weight, rows);
  if (r > 0) lora_A = AsMatrix(lora_A, r);
  if (r > 0) lora_B = AsMatrix(lora_B, rows);
  int64_t at = 0;
  for (const auto& [name, places] : linear.projections) {
    EXPECT_TRUE(golden.Matches(GatherRows(weight, places), "grad." + WeightName(golden, name)));
    const int64_t rank = RankOf(golden, name);
    if (rank == 0) continue;
    EXPECT_TRUE(golden.Matches(GatherRows(lora_A, Range(at, rank)), "grad." + name + ".lora_A"));
    Tensor block = Zeros(places.size(), rank);
    CopyBlock(lora_B, places, at, block, Range(0, places.size()), 0, rank);
    EXPECT_TRUE(golden.Matches(block, "grad." + name + ".lora_B"));
    at += rank;
  }
}

// Rows of part `part` of unit `unit` of a dimension.
void AppendPart(const DimExtent& dim, int64_t unit, size_t part, int64_t first, int64_t count,
                std::vector<int64_t>& rows) {
  for (int64_t i = 0; i < count; ++i) rows.push_back(dim.Index(unit, part, first + i));
}

// One projection up, one down, as GPT-2's.
Correspondence PlainMlpNames(const MlpConfig& config, const std::string& module,
                             const std::string& golden) {
  Correspondence names = {{{module + "linear_fc1", {{golden + "fc1", Range(0, config.ffn)}}},
                           {module + "linear_fc2", {{golden + "fc2", Range(0, config.hidden)}}}},
                          {}};
  if (config.bias) {
    names.plain = {{module + "linear_fc1.bias", golden + "fc1_bias"},
                   {module + "linear_fc2.bias", golden + "fc2_bias"}};
  }
  return names;
}

}  // namespace

void Correspondence::Append(const Correspondence& other) {
  linears.insert(linears.end(), other.linears.begin(), other.linears.end());
  plain.insert(plain.end(), other.plain.begin(), other.plain.end());
}

// Hugging Face: q_proj rows per head [q | gate]; ours per group [q heads | gate heads | k | v].
Correspondence AttentionNames(const SelfAttentionConfig& config, const std::string& module,
                              const std::string& golden) {
  const int64_t d = config.head_dim, heads = config.heads_per_group;
  const bool gate = config.output_gate;
  const size_t key = gate ? 2 : 1;
  DimExtent g = {.dim = Dim::kGroup, .units = config.num_query_groups, .parts = {heads * d}};
  if (gate) g.parts.push_back(heads * d);
  g.parts.insert(g.parts.end(), {d, d});
  Projection q = {golden + "q_proj", {}}, k = {golden + "k_proj", {}}, v = {golden + "v_proj", {}};
  for (int64_t unit = 0; unit < g.units; ++unit) {
    for (int64_t head = 0; head < heads; ++head) {
      AppendPart(g, unit, 0, head * d, d, q.rows);
      if (gate) AppendPart(g, unit, 1, head * d, d, q.rows);
    }
    AppendPart(g, unit, key, 0, d, k.rows);
    AppendPart(g, unit, key + 1, 0, d, v.rows);
  }
  return {{{module + "linear_qkv", {q, k, v}},
           {module + "linear_proj", {{golden + "o_proj", Range(0, config.hidden)}}}},
          {{module + "q_layernorm.weight", golden + "q_norm"},
           {module + "k_layernorm.weight", golden + "k_norm"}}};
}

Correspondence FlatGdnNames(const GatedDeltaNetConfig& config, const std::string& module,
                            const std::string& golden) {
  const int64_t keys = config.num_key_heads * config.key_head_dim, values = config.num_value_heads;
  const int64_t qkv = 2 * keys + values * config.value_head_dim;
  const int64_t z = values * config.value_head_dim;
  return {{{module + "in_proj",
            {{golden + "in_proj_qkv", Range(0, qkv)},
             {golden + "in_proj_z", Range(qkv, z)},
             {golden + "in_proj_b", Range(qkv + z, values)},
             {golden + "in_proj_a", Range(qkv + z + values, values)}}},
           {module + "out_proj", {{golden + "out_proj", Range(0, config.hidden)}}}},
          {{module + "conv1d.weight", golden + "conv1d"},
           {module + "A_log", golden + "A_log"},
           {module + "dt_bias", golden + "dt_bias"},
           {module + "out_norm.weight", golden + "norm"}}};
}

Correspondence MlpNames(const MlpConfig& config, const std::string& module,
                        const std::string& golden) {
  if (config.activation != MlpActivation::kSwiglu) return PlainMlpNames(config, module, golden);
  return {{{module + "linear_fc1",
            {{golden + "gate_proj", Range(0, config.ffn)},
             {golden + "up_proj", Range(config.ffn, config.ffn)}}},
           {module + "linear_fc2", {{golden + "down_proj", Range(0, config.hidden)}}}},
          {}};
}

LoraConfig LoraOnAllTargets(int64_t r) {
  return {
      .enabled = r > 0,
      .r = r,
      .targets = {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", "in_proj", "out_proj"}};
}

int64_t FusedRank(const Golden& golden, const Correspondence& names) {
  int64_t most = 0;
  for (const FusedLinear& linear : names.linears) {
    int64_t rank = 0;
    for (const Projection& projection : linear.projections)
      rank += RankOf(golden, projection.golden);
    most = std::max(most, rank);
  }
  return most;
}

Weights LoadWeights(const Golden& golden, const Correspondence& names) {
  Weights weights;
  const int64_t r = FusedRank(golden, names);
  for (const FusedLinear& linear : names.linears) LoadLinear(golden, linear, r, weights);
  for (const auto& [ours, theirs] : names.plain) weights[ours] = Matrix(golden, theirs);
  return weights;
}

void ExpectGradients(const Golden& golden, const Correspondence& names,
                     const std::function<Tensor(const std::string&)>& gradient) {
  const int64_t r = FusedRank(golden, names);
  for (const FusedLinear& linear : names.linears) ExpectLinear(golden, linear, r, gradient);
  for (const auto& [ours, theirs] : names.plain) {
    EXPECT_TRUE(golden.Matches(gradient(ours), "grad." + theirs)) << ours;
  }
}

void ExpectMatchesGolden(const Golden& golden, const Correspondence& names,
                         const Outcome& outcome) {
  EXPECT_TRUE(golden.Matches(outcome.WholeY(), "out.y", kSequenceFirst));
  EXPECT_TRUE(golden.Matches(outcome.Whole("x"), "grad.in.x", kSequenceFirst));
  ExpectGradients(golden, names, [&](const std::string& name) { return outcome.Whole(name); });
}

void ExpectRanksHold(const Golden& golden, const Outcome& outcome,
                     const std::vector<std::pair<std::string, std::string>>& names,
                     const std::string& y, const Axes& axes) {
  for (size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
    const std::string at = "tp" + std::to_string(rank) + ".";
    const RankTensors& own = outcome.ranks[rank];
    for (const auto& [ours, theirs] : names) {
      EXPECT_TRUE(golden.Matches(own.params.at(ours), at + theirs, ours == "x" ? axes : kAsStored));
    }
    const std::string up = "up." + at + y;
    if (golden.Has(up)) {
      EXPECT_TRUE(golden.Matches(own.values.at("Input(up)#0"), up, axes));
    }
  }
}

Tensor Activation(const Golden& golden, const std::string& name, Dim last) {
  const std::vector<int64_t>& shape = golden.Shape(name);
  return Stored(
      golden, name,
      {Plain(Dim::kSequence, shape[1]), Plain(Dim::kBatch, shape[0]), Plain(last, shape[2])},
      kSequenceFirst);
}

std::vector<int64_t> Range(int64_t first, int64_t count) {
  std::vector<int64_t> range(count);
  std::iota(range.begin(), range.end(), first);
  return range;
}

Tensor Matrix(const Golden& golden, const std::string& name) {
  const std::vector<int64_t>& shape = golden.Shape(name);
  const int64_t columns = shape.size() > 1 ? shape[1] : 1;
  return Stored(golden, name, {Plain(Dim::kOut, shape[0]), Plain(Dim::kIn, columns)});
}

Tensor GatherRows(const Tensor& from, const std::vector<int64_t>& rows) {
  Tensor out = Zeros(rows.size(), ColumnCount(from));
  CopyBlock(from, rows, 0, out, Range(0, rows.size()), 0, ColumnCount(from));
  return out;
}

Tensor OneHot(const Tensor& ids, int64_t classes) {
  Dims dims = ids.dims();
  dims.push_back(Plain(Dim::kVocab, classes));
  Tensor one_hot(dims);
  for (int64_t i = 0; i < ids.count(); ++i) {
    one_hot.data()[i * classes + static_cast<int64_t>(ids.data()[i])] = 1.0;
  }
  return one_hot;
}

}  // namespace sumonce::testing

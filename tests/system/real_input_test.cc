// Real input: a small hybrid language model whose weights, tokens, mask, loss and gradients come
// from the public PyTorch implementations (golden tiny_lm_lora), its base weights trained beside
// its adapters. It has 13 tokens: at tp 2 they run as they are without sequence parallelism, and
// with one masked token behind them under it.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/safetensors.h"
#include "sim/data.h"
#include "sim/hf_weights.h"
#include "sim/simulator.h"
#include "spmd/whole.h"
#include "tests/golden.h"
#include "tests/system/shipped.h"

namespace sumonce {
namespace {

using ::sumonce::testing::AllClose;

constexpr char kOutNorm[] = "decoder.layers.0.self_attention.out_norm.weight";

Scenario TinyLm(int tp) {
  return testing::Shipped("real/tiny_lm_lora", {.axes = {{Axis::kTp, tp}}, .seed = {}});
}

SafetensorsReader GoldenFile() {
  return *SafetensorsReader::Open(std::string(SUMONCE_TEST_DATA) +
                                  "/golden/tiny_lm_lora.f64.safetensors");
}

SimResult SimResultOf(const Scenario& scenario, const std::vector<Edit>& edits) {
  Model model(EffectiveModel(scenario));
  SimResult result =
      Simulate(scenario, edits, *StartWeights(scenario, model.params()), SimOptions());
  EXPECT_TRUE(result.status.ok()) << result.status;
  return result;
}

std::set<std::string> NamesWith(const SafetensorsReader& file, const std::string& prefix) {
  std::set<std::string> names;
  for (const auto& [name, info] : file.tensors()) {
    if (name.starts_with(prefix)) names.insert(name);
  }
  return names;
}

// The finalized gradient, put together as the parameter says it is cut; its copies must be the same
// to the last bit.
Tensor WholeGradient(const Param& param, const Mesh& mesh, const RunRecord& record) {
  std::vector<Tensor> ranks;
  for (const RankRecords& rank : record.ranks)
    ranks.push_back(rank[0].params.at(param.name).finalized());
  const Joined joined = Join(param.shards.Target(mesh), mesh, ranks);
  EXPECT_EQ(joined.spread, 0) << param.name;
  return joined.whole;
}

Tensor Flat(std::vector<double> values) {
  const int64_t count = static_cast<int64_t>(values.size());
  return Tensor({Plain(Dim::kOut, count)}, std::move(values));
}

Tensor Pick(const Tensor& whole, const std::vector<int64_t>& indices) {
  std::vector<double> values;
  for (int64_t index : indices) values.push_back(whole.data()[index]);
  return Flat(std::move(values));
}

// Every grad.param.* of the file is compared once, each to 1e-12 of its largest entry.
void ExpectGoldenGradients(const Scenario& scenario, const RunRecord& record) {
  const SafetensorsReader golden = GoldenFile();
  const Mesh mesh = *Mesh::Create(scenario.mesh);
  Model model(EffectiveModel(scenario));
  std::set<std::string> compared;
  for (const Param& param : model.params().all()) {
    const Tensor whole = WholeGradient(param, mesh, record);
    for (const HfTensor& tensor : HfTensorsOf(scenario.model, param)) {
      const std::string name = "grad.param." + tensor.name;
      EXPECT_TRUE(compared.insert(name).second) << name << " stands for two parameters";
      EXPECT_TRUE(AllClose(Pick(whole, tensor.indices), Flat(*golden.Read(name))))
          << name << ", in " << param.name;
    }
  }
  EXPECT_EQ(compared, NamesWith(golden, "grad.param."));
  EXPECT_EQ(compared.size(), 58u);
}

// The ranks' shares over dp, of one tp rank, through the count of tokens.
void ExpectGoldenLoss(const Scenario& scenario, const RunRecord& record) {
  const Mesh mesh = *Mesh::Create(scenario.mesh);
  const double expected = GoldenFile().Read("out.loss")->at(0);
  for (int tp_rank : mesh.Ranks(mesh.GroupOf(Axis::kTp), 0)) {
    double loss = 0;
    for (int rank : mesh.Ranks(mesh.GroupOf(Axis::kDp), tp_rank))
      loss += record.ranks[rank][0].loss;
    EXPECT_NEAR(loss / record.ranks[tp_rank][0].num_tokens, expected, 1e-12 * expected)
        << "tp rank " << tp_rank;
  }
}

// The same numbers with an adapter of its own for each sub-projection, as the file has them: no
// block of a fused factor stands between.
TEST(RealInput, AdaptersOfSubProjectionsReproduceEveryGradient) {
  for (const int tp : {1, 2}) {
    Scenario scenario = TinyLm(tp);
    scenario.model.common.lora.separate_adapters = false;
    scenario.model.common.lora.per_sub_projection = true;
    const SimResult result = SimResultOf(scenario, scenario.cures);
    ExpectGoldenLoss(scenario, result.record);
    ExpectGoldenGradients(scenario, result.record);
  }
}

TEST(RealInput, UnshardedReproducesLossAndEveryGradient) {
  const Scenario scenario = TinyLm(1);
  const SimResult result = SimResultOf(scenario, {});
  ExpectGoldenLoss(scenario, result.record);
  ExpectGoldenGradients(scenario, result.record);
}

TEST(RealInput, TwoShardsReproduceLossAndEveryGradientOnceCured) {
  const Scenario scenario = TinyLm(2);
  const SimResult result = SimResultOf(scenario, scenario.cures);
  ExpectGoldenLoss(scenario, result.record);
  ExpectGoldenGradients(scenario, result.record);
}

// Nobody sums out_norm without the cure: what the ranks are left with adds up to the gradient, and
// neither is it.
TEST(RealInput, WithoutTheCureOutNormIsLeftInSharesOfTheGradient) {
  const SimResult result = SimResultOf(TinyLm(2), {});
  const Tensor expected = Flat(*GoldenFile().Read("grad.param.layers.0.linear_attn.norm"));
  Tensor sum = Flat(std::vector<double>(expected.count()));
  for (const RankRecords& rank : result.record.ranks) {
    const Tensor& share = rank[0].params.at(kOutNorm).finalized();
    EXPECT_FALSE(AllClose(Pick(share, {0, 1, 2, 3, 4}), expected));
    AddInto(sum, Pick(share, {0, 1, 2, 3, 4}));
  }
  EXPECT_TRUE(AllClose(sum, expected));
}

// [rows, columns] of the file with zeros behind each row: id 0, not counted by the mask.
TensorToWrite PaddedColumns(const SafetensorsReader& file, const std::string& name,
                            int64_t columns) {
  const std::vector<int64_t> shape = file.tensors().at(name).shape;
  const std::vector<double> values = *file.Read(name);
  TensorToWrite padded{.dtype = DType::kFloat64, .shape = {shape[0], columns}, .values = {}};
  for (int64_t row = 0; row < shape[0]; ++row) {
    padded.values.insert(padded.values.end(), values.begin() + row * shape[1],
                         values.begin() + (row + 1) * shape[1]);
    padded.values.resize((row + 1) * columns, 0.0);
  }
  return padded;
}

// The angle 0 behind the rotary tables: cos 1, sin 0.
TensorToWrite PaddedRows(const SafetensorsReader& file, const std::string& name, int64_t rows,
                         double fill) {
  const int64_t columns = file.tensors().at(name).shape[1];
  TensorToWrite padded{
      .dtype = DType::kFloat64, .shape = {rows, columns}, .values = *file.Read(name)};
  padded.values.resize(rows * columns, fill);
  return padded;
}

Scenario PaddedTo(Scenario scenario, int64_t sequence, const std::string& path) {
  const SafetensorsReader golden = GoldenFile();
  std::map<std::string, TensorToWrite> data;
  for (const char* name : {"in.tokens", "in.targets", "in.loss_mask"})
    data[name] = PaddedColumns(golden, name, sequence);
  data["in.cos"] = PaddedRows(golden, "in.cos", sequence, 1.0);
  data["in.sin"] = PaddedRows(golden, "in.sin", sequence, 0.0);
  EXPECT_TRUE(WriteSafetensors(path, data, {}, true).ok());
  scenario.data.sequence = sequence;
  scenario.data.from_file = path;
  EXPECT_TRUE(UseRotaryTables(scenario).ok());
  return scenario;
}

// Under sequence parallelism each rank holds 7 of 14 tokens. The model is causal, so what stands
// behind the last counted token changes nothing; out_norm has its mark and needs no cure.
TEST(RealInput, SequenceShardsReproduceLossAndEveryGradient) {
  const std::string path = ::testing::TempDir() + "sumonce_tiny_lm_14_tokens.safetensors";
  Scenario scenario = PaddedTo(TinyLm(2), 14, path);
  scenario.sequence_parallel = true;
  const SimResult result = SimResultOf(scenario, {});
  std::filesystem::remove(path);
  ExpectGoldenLoss(scenario, result.record);
  ExpectGoldenGradients(scenario, result.record);
}

// Fused parameters hold the file's tensors and, off the diagonal blocks of adapters, zeros.
TEST(RealInput, ImportedWeightsGiveBackEveryTensorOfTheFile) {
  const Scenario scenario = TinyLm(1);
  const SafetensorsReader golden = GoldenFile();
  Model model(EffectiveModel(scenario));
  const Weights weights = *ImportHfWeights(scenario, golden, model.params());
  std::set<std::string> found;
  for (const Param& param : model.params().all()) {
    Tensor rest = weights.at(param.name).Clone();
    for (const HfTensor& tensor : HfTensorsOf(scenario.model, param)) {
      const std::string name = "param." + tensor.name;
      const Tensor part = Pick(weights.at(param.name), tensor.indices);
      EXPECT_EQ(std::vector<double>(part.values().begin(), part.values().end()), *golden.Read(name))
          << name;
      for (int64_t index : tensor.indices) rest.data()[index] = 0;
      found.insert(name);
    }
    for (double value : rest.values())
      ASSERT_EQ(value, 0) << param.name << " holds what no tensor of the file gives";
  }
  EXPECT_EQ(found, NamesWith(golden, "param."));
}

}  // namespace
}  // namespace sumonce

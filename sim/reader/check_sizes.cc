// Sizes that an axis cuts: units, axis, and the sizes that would do.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sim/reader/reading.h"

namespace sumonce {
namespace {

// Units that tp cuts.
struct CutUnits {
  std::string field;
  int64_t units = 0;
  bool given = false;  // else it is the default
  Location at;
  std::string or_else;  // what else would do
};

CutUnits UnitsOf(const Block& block, const char* field, int64_t units) {
  return {.field = field, .units = units, .given = block.Given(field), .at = block.At(field)};
}

// Whole groups on each rank, or ranks that share a group and cut its queries.
void AddAttention(const Block& block, const SelfAttentionConfig& attention, int tp,
                  std::vector<CutUnits>& cuts) {
  const int64_t groups = attention.num_query_groups;
  if (groups >= tp || tp % groups != 0) {
    cuts.push_back(UnitsOf(block, "num_query_groups", groups));
    if (groups < tp) cuts.back().or_else = absl::StrCat(", or num_query_groups that divide ", tp);
    return;
  }
  cuts.push_back(UnitsOf(block, "num_heads", groups * attention.heads_per_group));
  if (attention.kv_copies) return;
  const int64_t parts = attention.heads_per_group * (attention.output_gate ? 2 : 1) + 2;
  cuts.push_back(UnitsOf(block, "head_dim", groups * parts * attention.head_dim));
  cuts.back().field = "rows of linear_qkv";
}

void AddLayer(const Block& block, const DecoderLayerConfig& layer, int tp,
              std::vector<CutUnits>& cuts) {
  if (const auto* attention = std::get_if<SelfAttentionConfig>(&layer.mixer))
    AddAttention(block.Child("self_attention"), *attention, tp, cuts);
  const auto* gdn = std::get_if<GatedDeltaNetConfig>(&layer.mixer);
  if (gdn && !IsReplica(gdn->mode)) {
    cuts.push_back(UnitsOf(block.Child("linear_attention"), "num_key_heads", gdn->num_key_heads));
  }
  if (const auto* latent = std::get_if<LatentAttentionConfig>(&layer.mixer)) {
    const Block mixer = block.Child("multi_latent_attention");
    cuts.push_back(UnitsOf(mixer, "num_heads", latent->num_heads));
    if (latent->down_projection == DownProjection::kColumnParallel) {
      cuts.push_back(UnitsOf(mixer, "q_lora_rank", latent->q_lora_rank));
      cuts.push_back(
          UnitsOf(mixer, "kv_lora_rank", latent->kv_lora_rank + latent->qk_pos_emb_head_dim));
      cuts.back().field = "kv_lora_rank + qk_pos_emb_head_dim";
    }
  }
  if (layer.shared_expert)
    cuts.push_back(UnitsOf(block.Child("shared_expert"), "ffn", layer.shared_expert->mlp.ffn));
  if (layer.mlp) cuts.push_back(UnitsOf(block.Child("mlp"), "ffn", layer.mlp->ffn));
}

std::vector<CutUnits> UnitsCutByTp(const Block& root, const Scenario& scenario) {
  const Block model = root.Child("model");
  std::vector<CutUnits> cuts = {UnitsOf(model, "vocab", scenario.model.vocab)};
  const std::vector<Block> layers = model.Children("layer");
  for (size_t i = 0; i < scenario.model.layers.size(); ++i) {
    AddLayer(layers[i], scenario.model.layers[i], scenario.mesh.tp, cuts);
  }
  if (scenario.sequence_parallel) {
    cuts.push_back(UnitsOf(root.Child("data"), "sequence", scenario.data.sequence));
    cuts.back().or_else = ", or sequence_parallel: false";
    if (!cuts.back().given) cuts.back().at = root.At("sequence_parallel");
  }
  return cuts;
}

// "1, 2 or 4": what divides all the units.
std::string SizesThatDo(const std::vector<CutUnits>& cuts) {
  int64_t common = 0;
  for (const CutUnits& cut : cuts) common = std::gcd(common, cut.units);
  std::vector<std::string> sizes;
  for (int64_t size = 1; size <= std::min<int64_t>(common, 1024); ++size) {
    if (common % size == 0) sizes.push_back(std::to_string(size));
  }
  return OneOf(sizes);
}

void CheckPositions(const Block& root, Reading& reading) {
  const int64_t rows = reading.scenario.model.max_positions;
  const int64_t sequence = reading.scenario.data.sequence;
  if (rows == 0 || rows >= sequence) return;
  root.Child("model").Add("max_position_embeddings",
                          absl::StrCat("max_position_embeddings: ", rows,
                                       ", expected at least one row for each of the data's ",
                                       sequence, " tokens; take ", sequence));
}

// Where ranks share a key-value group, tp is two axes: all layers must cut it alike.
void CutTpByGroups(const Block& root, Reading& reading) {
  MeshSizes& mesh = reading.scenario.mesh;
  const std::vector<Block> layers = root.Child("model").Children("layer");
  for (size_t i = 0; i < reading.scenario.model.layers.size(); ++i) {
    const auto* attention =
        std::get_if<SelfAttentionConfig>(&reading.scenario.model.layers[i].mixer);
    if (!attention) continue;
    const int64_t groups = attention->num_query_groups;
    if (groups >= mesh.tp || mesh.tp % groups != 0) continue;
    if (mesh.kv == 0) mesh.kv = static_cast<int>(groups);
    if (mesh.kv == groups) continue;
    layers[i]
        .Child("self_attention")
        .Add("num_query_groups",
             absl::StrCat("num_query_groups: ", groups, " beside a layer of ", mesh.kv, " on ",
                          Said(Axis::kTp, reading),
                          ", expected the same of all layers that have fewer groups than tp "
                          "ranks; take ",
                          mesh.kv));
  }
}

}  // namespace

void CheckSizes(const Block& root, Reading& reading) {
  CheckPositions(root, reading);
  CutTpByGroups(root, reading);
  const int tp = reading.scenario.mesh.tp;
  const std::vector<CutUnits> cuts = UnitsCutByTp(root, reading.scenario);
  for (const CutUnits& cut : cuts) {
    if (cut.units % tp == 0) continue;
    const int64_t below = cut.units / tp * tp;
    reading.mistakes->Add(
        cut.at,
        absl::StrCat(cut.field, ": ", cut.units, cut.given ? "" : " (the default)",
                     " cannot be cut by ", Said(Axis::kTp, reading), ", expected a multiple of ",
                     tp, "; take ", below > 0 ? absl::StrCat(below, " or ") : "", below + tp,
                     ", or for the whole file tp ", SizesThatDo(cuts), cut.or_else));
  }
}

}  // namespace sumonce

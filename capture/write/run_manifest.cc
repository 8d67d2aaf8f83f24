#include "capture/write/run_manifest.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "layers/decoder/decoder.h"
#include "nlohmann/json.hpp"
#include "sim/simulator.h"

namespace sumonce::capture {
namespace {

using Json = nlohmann::json;

constexpr Axis kMeshAxes[] = {Axis::kTp, Axis::kCp,  Axis::kDp, Axis::kPp,
                              Axis::kEp, Axis::kEtp, Axis::kEdp};

Json MeshJson(const Mesh& mesh, int rank) {
  Json json = Json::object();
  for (const Axis axis : kMeshAxes) {
    json[std::string(Name(axis))] = {{"size", mesh.size(axis)},
                                     {"coordinate", mesh.coordinate(rank, axis)}};
  }
  return json;
}

Json GroupJson(const Mesh& mesh, const Group& group) {
  Json lists = Json::array();
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const std::vector<int> ranks = mesh.Ranks(group, rank);
    if (ranks.front() == rank) lists.push_back(ranks);
  }
  return lists;
}

Json GroupsJson(const Mesh& mesh) {
  Json json = Json::object();
  for (const Axis axis : kMeshAxes)
    json[std::string(Name(axis))] = GroupJson(mesh, mesh.GroupOf(axis));
  json["dp_cp"] = GroupJson(mesh, mesh.GroupOf({Axis::kDp, Axis::kCp}, "dp_cp"));
  json["mp"] = GroupJson(mesh, mesh.GroupOf({Axis::kPp, Axis::kTp}, "mp"));
  return json;
}

Json MarksJson(const Marks& marks) {
  Json json = {{"sequence_parallel", marks.sequence_parallel}, {"allreduce", marks.allreduce}};
  if (marks.average_gradients_across_tp_domain) json["average_gradients_across_tp_domain"] = true;
  if (marks.tensor_model_parallel) json["tensor_model_parallel"] = true;
  if (marks.partition_dim >= 0) json["partition_dim"] = marks.partition_dim;
  if (marks.shared) json["shared"] = true;
  return json;
}

// {"dim": 0} or, of parts that each are cut, {"dim": 0, "sections": [...]}; null where a cut is not
// one over tp.
Json LayoutJson(const ShardMap& shards) {
  if (shards.cuts().size() != 1 || shards.cuts()[0].axis != Axis::kTp) return nullptr;
  const int position = Find(shards.whole(), shards.cuts()[0].dim);
  const DimExtent& dim = shards.whole()[position];
  Json json = {{"dim", position}};
  if (dim.plain() || dim.packing == Packing::kUnitMajor) return json;
  json["sections"] = Json::array();
  for (const int64_t part : dim.parts) json["sections"].push_back(dim.units * part);
  return json;
}

// "megatron_core_0_16" is megatron-core 0.16.
Json FrameworkJson(const std::string& finalizer) {
  constexpr std::string_view kPrefix = "megatron_core_";
  if (!finalizer.starts_with(kPrefix)) return {{"sumonce-finalizer", finalizer}};
  std::string version = finalizer.substr(kPrefix.size());
  for (char& c : version) c = c == '_' ? '.' : c;
  return {{"megatron-core", version + ".0"}, {"sumonce-finalizer", finalizer}};
}

Json ConfigJson(const Scenario& scenario) {
  const FinalizeConfig finalize = EffectiveFinalizeConfig(scenario);
  return {{"sequence_parallel", finalize.sequence_parallel},
          {"qk_layernorm", finalize.qk_layernorm},
          {"calculate_per_token_loss", finalize.per_token_loss},
          {"tensor_model_parallel_size", scenario.mesh.tp},
          {"pipeline_model_parallel_size", scenario.mesh.pp},
          {"context_parallel_size", scenario.mesh.cp},
          {"expert_model_parallel_size", scenario.mesh.ep}};
}

}  // namespace

std::map<std::string, std::string> RunMetadata(const Scenario& scenario, const Mesh& mesh, int rank,
                                               const StepRecord& record, const std::string& name) {
  Json params = Json::object(), layout = Json::object();
  Model model(EffectiveModel(scenario));
  for (const Param& param : model.params().all()) {
    const auto entry = record.params.find(param.name);
    if (entry == record.params.end()) continue;
    Json shape = Json::array();
    for (const DimExtent& dim : param.shards.Local(mesh)) shape.push_back(dim.extent());
    params[param.name] = {{"shape", shape},
                          {"dtype", std::string(Name(scenario.precision.weight_dtype()))},
                          {"requires_grad", param.requires_grad},
                          {"marks", MarksJson(entry->second.marks)}};
    if (!param.shards.cuts().empty()) layout[param.name] = LayoutJson(param.shards);
  }
  const bool per_token = scenario.loss == LossMode::kPerToken;
  Json tokens = {{"global", nullptr}};
  if (per_token) tokens["global"] = record.num_tokens;
  const double factor = per_token ? 1.0 : 1.0 / mesh.size(Axis::kDp);
  std::map<std::string, std::string> metadata = {
      {"format", "sumonce-capture"},
      {"version", "1"},
      {"case", name},
      {"step", absl::StrCat(record.step)},
      {"rank", absl::StrCat(rank)},
      {"world_size", absl::StrCat(mesh.world_size())},
      {"mesh", MeshJson(mesh, rank).dump()},
      {"groups", GroupsJson(mesh).dump()},
      {"framework", FrameworkJson(scenario.finalizer).dump()},
      {"params", params.dump()},
      {"layout", layout.dump()},
      {"config", ConfigJson(scenario).dump()},
      {"tokens", tokens.dump()},
      {"ddp", Json({{"gradient_scaling_factor", factor}}).dump()},
      {"loss_weights", Json({{"microbatches", scenario.data.microbatches}}).dump()}};
  // A capture's norm is the square root of a sum of squares.
  if (record.grad_norm && scenario.optimizer.norm_type == NormType::kL2) {
    metadata["grad_norm"] = Json(record.grad_norm->norm).dump();
    metadata["clip_grad"] = Json(scenario.optimizer.clip_grad).dump();
  }
  return metadata;
}

}  // namespace sumonce::capture

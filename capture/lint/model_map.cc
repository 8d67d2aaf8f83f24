#include "capture/lint/model_map.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "capture/audit/geometry.h"
#include "capture/lint/block_map.h"
#include "comm/mesh.h"
#include "sim/finalize/finalizer.h"

namespace sumonce::lint {
namespace {

using capture::Manifest;

constexpr char kMegatronDdp[] = "megatron.core.distributed";

// "" and the preset for the version, or why there is none.
std::string FindPreset(const Manifest& manifest, ModelMap& map) {
  const auto found = manifest.framework.find("megatron-core");
  if (found == manifest.framework.end())
    return "framework.megatron-core is missing: the finalizer's rules are not known";
  const std::vector<int> version = VersionNumbers(found->second);
  const auto preset = [](int minor) { return absl::StrCat("megatron_core_0_", minor); };
  const auto known = [&](int minor) { return Finalizers().Find(preset(minor)).ok(); };
  if (version.empty())
    return absl::StrCat("framework.megatron-core is '", found->second, "', expected a version");
  map.scenario.finalizer = preset(version[1]);
  if (version[0] == 0 && known(version[1])) return "";
  int newest = 0;
  for (int minor = 0; minor < 100; ++minor) newest = known(minor) ? minor : newest;
  if (version[0] == 0 && version[1] < newest)
    return absl::StrCat("megatron-core ", found->second,
                        " is older than the finalizers known here");
  map.scenario.finalizer = preset(newest);
  map.assumptions.push_back(absl::StrCat("megatron-core ", found->second, " finalizes as 0.",
                                         newest, ", the newest that is known here"));
  return "";
}

constexpr int64_t kMaxRanks = int64_t{1} << 20;
constexpr size_t kMaxLayers = 1024;

std::string MeshProblem(const Manifest& manifest) {
  const int64_t ranks = int64_t{manifest.AxisSize("tp")} * manifest.AxisSize("dp");
  if (ranks > kMaxRanks)
    return absl::StrCat("tp times dp is ", ranks, ", expected at most ", kMaxRanks);
  for (const char* axis : {"cp", "pp"}) {
    if (manifest.AxisSize(axis) > 1) {
      return absl::StrCat(axis, " is ", manifest.AxisSize(axis), ": ",
                          axis[0] == 'c' ? "context" : "pipeline", " parallelism is not modelled");
    }
  }
  return "";
}

// What the proof and the finalizer's rules follow must be said, and must not be denied.
std::string ConfigProblem(const Manifest& manifest) {
  if (manifest.AxisSize("tp") == 1) return "";
  const auto config = capture::FlagOf(manifest.config, "sequence_parallel");
  if (!config)
    return "config.sequence_parallel is missing: what the ranks' activations are is not known";
  if (*config) return "";
  for (const auto& [path, module] : manifest.modules) {
    if (!capture::IsSet(module.attributes, "sequence_parallel")) continue;
    return absl::StrCat("config.sequence_parallel is false, and on ", path,
                        " it is true: which of them the activations follow is not known");
  }
  return "";
}

// Dense parameters that are reduced with the experts' gradients need the experts' groups: ranks
// that neither tp nor dp tells apart.
void SetExpertGroups(const Manifest& manifest, ModelMap& map) {
  const auto with_experts = [](const auto& entry) {
    return entry.second.requires_grad && !capture::IsExpertName(entry.first) &&
           !capture::FlagOf(entry.second.marks, "allreduce").value_or(true);
  };
  const auto etp = manifest.mesh.find("etp");
  if (std::none_of(manifest.params.begin(), manifest.params.end(), with_experts)) return;
  MeshSizes sizes = map.scenario.mesh;
  sizes.ep = manifest.AxisSize("ep");
  sizes.etp = etp == manifest.mesh.end() ? 0 : etp->second.size;
  const absl::StatusOr<Mesh> mesh = Mesh::Create(sizes);
  const auto lists = manifest.groups.find("edp");
  if (!mesh.ok() || lists == manifest.groups.end()) return;
  // The job's own groups are those of Megatron's rank order.
  for (std::vector<int> ranks : lists->second) {
    std::sort(ranks.begin(), ranks.end());
    if (ranks.empty() || ranks.front() < 0 || ranks.back() >= mesh->world_size()) return;
    std::vector<int> ours = mesh->Ranks(mesh->GroupOf(Axis::kEdp), ranks.front());
    std::sort(ours.begin(), ours.end());
    if (ours != ranks) return;
  }
  map.scenario.mesh = sizes;
  map.expert_groups = true;
}

std::string WrapperProblem(const Manifest& manifest) {
  const auto wrapper = capture::TextOf(manifest.ddp, "wrapper");
  if (!wrapper || wrapper->starts_with(kMegatronDdp)) return "";
  return absl::StrCat("the gradients are reduced by ", *wrapper, ", which is not modelled");
}

void SetScenario(const Manifest& manifest, ModelMap& map) {
  Scenario& scenario = map.scenario;
  const int tp = manifest.AxisSize("tp");
  scenario.name = manifest.case_name.empty() ? "manifest" : manifest.case_name;
  scenario.mesh = {.tp = tp, .dp = manifest.AxisSize("dp")};
  scenario.sequence_parallel =
      capture::FlagOf(manifest.config, "sequence_parallel").value_or(false) && tp > 1;
  scenario.qk_layernorm = capture::FlagOf(manifest.config, "qk_layernorm").value_or(false);
  scenario.loss = capture::FlagOf(manifest.config, "calculate_per_token_loss").value_or(false)
                      ? LossMode::kPerToken
                      : LossMode::kMeanOfCells;
  scenario.data.sequence = 2 * tp;
  scenario.model.vocab = 2 * tp;
  scenario.model.hidden = SizesFor(tp).hidden;
  scenario.model.common.train_base = true;
  scenario.model.common.lora.r = 2;
}

class Mapper {
 public:
  explicit Mapper(const MapContext& context) : context_(context), tree_(context.tree) {}

  void MapAll() {
    const std::string block = MainBlock();
    if (block.empty()) return;
    const std::string prefix = block.substr(0, block.size() - std::string("decoder").size());
    MapEnds(block, prefix);
    const std::vector<std::string> layers = tree_.Children(block + ".layers");
    if (layers.size() > kMaxLayers) {
      context_.map.refused = absl::StrCat(layers.size(), " layers, expected at most ", kMaxLayers);
      return;
    }
    for (const std::string& layer : layers) MapLayer(absl::StrCat(block, ".layers.", layer));
    NameUnknownModules();
  }

 private:
  // The decoder that stands beside the embedding; of several the first.
  std::string MainBlock() const {
    std::string first;
    for (const std::string& path : tree_.PathsOf(ModuleKind::kBlock)) {
      if (path != "decoder" && !path.ends_with(".decoder")) continue;
      const std::string prefix = path.substr(0, path.size() - std::string("decoder").size());
      if (tree_.Has(prefix + "embedding")) return path;
      if (first.empty()) first = path;
    }
    return first;
  }

  // Embedding, last norm and output layer.
  void MapEnds(const std::string& block, const std::string& prefix) {
    ModelConfig& model = context_.map.scenario.model;
    const std::string words = prefix + "embedding.word_embeddings";
    if (tree_.KindAt(words) == ModuleKind::kVocabEmbedding)
      MapParam(context_, words, "weight", "embedding.word_embeddings.weight");
    const std::string positions = prefix + "embedding.position_embeddings";
    if (tree_.KindAt(positions) == ModuleKind::kPositionEmbedding) {
      model.max_positions = context_.map.scenario.data.sequence;
      MapParam(context_, positions, "weight", "embedding.position_embeddings.weight");
    }
    MapNorm(context_, block + ".final_layernorm", "decoder.final_layernorm");
    MapOutput(prefix + "output_layer");
  }

  void MapOutput(const std::string& path) {
    if (!tree_.Has(path)) return;
    if (!tree_.HasParam(path, "weight")) {
      context_.map.assumptions.push_back(
          absl::StrCat(path, " uses the embedding's weight: its gradient is the sum of both uses"));
      return;
    }
    const LinearFacts facts = LookAtLinear(context_, path, LinearShape::kColumn);
    if (!facts.problem.empty()) {
      LeaveOut(path, facts.problem);
    } else {
      MapLinear(context_, path, "output_layer", LinearShape::kColumn);
    }
  }

  void MapLayer(const std::string& path) {
    DecoderLayerConfig layer;
    const std::string ours =
        absl::StrCat("decoder.layers.", context_.map.scenario.model.layers.size());
    if (tree_.KindAt(path) != ModuleKind::kLayer) {
      LeaveOut(path, absl::StrCat(tree_.ClassAt(path), " is not known"));
      layer.mixer = StandInMixer(context_.tp, false);
    } else {
      MapMixer(path, ours, layer);
      MapMlpOf(path, ours, layer);
    }
    context_.map.scenario.model.layers.push_back(layer);
    context_.map.layer_paths.push_back(path);
  }

  void MapMixer(const std::string& path, const std::string& ours, DecoderLayerConfig& layer) {
    const std::string mixer = path + ".self_attention", norm = path + ".input_layernorm";
    layer.mixer = std::monostate();
    if (!tree_.Has(mixer)) return;
    layer.input_layernorm = MapNorm(context_, norm, ours + ".input_layernorm");
    const std::string problem = MixerProblem(mixer, ours + ".self_attention", layer);
    if (problem.empty()) return;
    LeaveOut(mixer, problem);
    layer.mixer = StandInMixer(context_.tp, layer.input_layernorm);
  }

  std::string MixerProblem(const std::string& path, const std::string& ours,
                           DecoderLayerConfig& layer) {
    switch (tree_.KindAt(path)) {
      case ModuleKind::kSelfAttention:
        return MapSelfAttention(context_, path, ours, layer.input_layernorm, layer);
      case ModuleKind::kGatedDeltaNet:
      case ModuleKind::kGatherGatedDeltaNet:
        return MapGatedDeltaNet(context_, path, ours, layer.input_layernorm, layer);
      case ModuleKind::kMla:
        return MapLatentAttention(context_, path, ours, layer.input_layernorm, layer);
      default:
        return NotModelled(path);
    }
  }

  void MapMlpOf(const std::string& path, const std::string& ours, DecoderLayerConfig& layer) {
    const std::string mlp = path + ".mlp", norm = path + ".pre_mlp_layernorm";
    if (!tree_.Has(mlp)) return;
    layer.pre_mlp_layernorm = MapNorm(context_, norm, ours + ".pre_mlp_layernorm");
    std::string problem = NotModelled(mlp);
    if (tree_.KindAt(mlp) == ModuleKind::kMlp)
      problem = MapMlp(context_, mlp, ours + ".mlp", layer.pre_mlp_layernorm, layer);
    if (problem.empty()) return;
    LeaveOut(mlp, problem);
    layer.mlp = StandInMlp(context_.tp, layer.pre_mlp_layernorm);
    if (tree_.KindAt(mlp + ".router") == ModuleKind::kRouter &&
        tree_.HasParam(mlp + ".router", "weight"))
      context_.map.routers.push_back(mlp + ".router.weight");
  }

  // Modules of unknown classes at places that the map does not look at: with parameters they are
  // left out, without they are taken to communicate nothing.
  void NameUnknownModules() {
    std::set<std::string> said;
    for (const auto& [path, kind] : tree_.all()) {
      if (kind != ModuleKind::kUnknown || IsLeftOut(path) || path.ends_with(".core_attention"))
        continue;
      if (!tree_.ParamsAt(path).empty()) {
        LeaveOut(path, absl::StrCat(tree_.ClassAt(path), " is not known"));
        continue;
      }
      const std::string sentence = absl::StrCat(PatternOf(path), " (", tree_.ClassAt(path),
                                                ", not known) communicates nothing of its own");
      if (said.insert(sentence).second) context_.map.assumptions.push_back(sentence);
    }
  }

  bool IsLeftOut(const std::string& path) const {
    const auto& left_out = context_.map.unmodelled;
    return std::any_of(left_out.begin(), left_out.end(), [&](const Unmodelled& unmodelled) {
      return path == unmodelled.path || path.starts_with(unmodelled.path + ".");
    });
  }

  std::string NotModelled(const std::string& path) const {
    const ModuleKind kind = tree_.KindAt(path);
    return absl::StrCat(tree_.ClassAt(path),
                        kind == ModuleKind::kUnknown
                            ? " is not known"
                            : absl::StrCat(" (", ToAbsl(Name(kind)), ") is not modelled"));
  }

  void LeaveOut(const std::string& path, const std::string& reason) {
    context_.map.unmodelled.push_back({path, tree_.ClassAt(path), reason});
  }

  MapContext context_;
  const ModuleTree& tree_;
};

}  // namespace

ModelMap MapModel(const Manifest& manifest, const ModuleTree& tree) {
  ModelMap map;
  SetScenario(manifest, map);
  for (const std::string& problem : {WrapperProblem(manifest), MeshProblem(manifest),
                                     FindPreset(manifest, map), ConfigProblem(manifest)}) {
    if (!problem.empty() && map.refused.empty()) map.refused = problem;
  }
  if (map.refused.empty()) SetExpertGroups(manifest, map);
  if (map.refused.empty() && manifest.modules.empty())
    map.refused = "the manifest has no modules: the first step's file holds them";
  if (!map.refused.empty()) return map;
  const MapContext context{.manifest = manifest,
                           .tree = tree,
                           .map = map,
                           .sequence_parallel = map.scenario.sequence_parallel,
                           .tp = map.scenario.mesh.tp};
  Mapper(context).MapAll();
  if (map.scenario.model.layers.empty() && map.params.empty())
    map.refused = "no TransformerBlock with layers was found: its modules are not known";
  return map;
}

std::string AsInManifest(const std::string& ours, const ModelMap& map) {
  for (size_t i = 0; i < map.layer_paths.size(); ++i) {
    const std::string prefix = absl::StrCat("decoder.layers.", i, ".");
    if (ours.starts_with(prefix))
      return absl::StrCat(map.layer_paths[i], ".", ours.substr(prefix.size()));
  }
  return ours;
}

std::string ReasonFor(const std::string& param, const ModelMap& map, const ModuleTree& tree) {
  for (const Unmodelled& unmodelled : map.unmodelled) {
    if (param.starts_with(unmodelled.path + ".")) return unmodelled.reason;
  }
  const std::string owner = tree.OwnerOf(param);
  if (owner.empty()) return "the manifest has no module that holds it";
  return absl::StrCat(tree.ClassAt(owner), " at this place is not modelled");
}

}  // namespace sumonce::lint

#include "capture/lint/block_map.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce::lint {
namespace {

// A fused norm, or one in front: both or neither is another layer than ours.
std::string NormProblem(const std::string& path, bool fused, bool in_front) {
  if (fused != in_front) return "";
  return absl::StrCat(
      path, fused ? " has a fused norm and one in front of it" : " has no norm in front of it");
}

// With fewer key-value groups than ranks the heads are gathered and sliced, or held as copies.
std::string GroupsProblem(const MapContext& context) {
  const auto heads = capture::IntegerOf(context.manifest.config, "num_attention_heads");
  const auto groups = capture::IntegerOf(context.manifest.config, "num_query_groups");
  const int64_t found = groups.value_or(heads.value_or(context.tp));
  if (found >= context.tp) return "";
  return absl::StrCat("num_query_groups is ", found, ", fewer than tp ", context.tp,
                      ": how its key-value heads are shared is not modelled");
}

// q_layernorm and k_layernorm, both or none. False: something else stands there.
bool MapQkNorms(const MapContext& context, const std::string& path, const std::string& ours,
                bool* present) {
  const bool q = context.tree.KindAt(path + ".q_layernorm") == ModuleKind::kNorm;
  const bool k = context.tree.KindAt(path + ".k_layernorm") == ModuleKind::kNorm;
  *present = q;
  if (q != k) return false;
  MapNorm(context, path + ".q_layernorm", ours + ".q_layernorm");
  MapNorm(context, path + ".k_layernorm", ours + ".k_layernorm");
  return true;
}

// in_proj, or the two of the decoupled layer, which are one matrix of ours cut in two.
std::vector<std::string> InProjections(const MapContext& context, const std::string& path) {
  if (context.tree.Has(path + ".in_proj_qkvz")) return {"in_proj_qkvz", "in_proj_ba"};
  return {"in_proj"};
}

std::string InProjectionsProblem(const MapContext& context, const std::string& path,
                                 bool* fused_norm) {
  *fused_norm = false;
  for (const std::string& name : InProjections(context, path)) {
    const LinearFacts facts = LookAtLinear(context, Joined(path, name), LinearShape::kColumn);
    if (!facts.problem.empty()) return facts.problem;
    *fused_norm = *fused_norm || facts.norm;
  }
  return "";
}

// Whether the layer gathers the sequence; a problem if its version is not known.
std::string ModeOf(const MapContext& context, const std::string& path, GdnMode* mode) {
  *mode = GdnMode::kUpstream;
  if (context.tree.KindAt(path) != ModuleKind::kGatherGatedDeltaNet || !context.sequence_parallel)
    return "";
  const auto version = context.manifest.framework.find("mcore-bridge");
  if (version == context.manifest.framework.end()) {
    return "framework.mcore-bridge is missing: its version decides whether this layer gathers the "
           "sequence";
  }
  if (GathersSequence(version->second)) *mode = GdnMode::kGatherRegion;
  return "";
}

// A projection down: a cut weight, or a whole one.
std::string DownProblem(const MapContext& context, const std::string& path, bool column) {
  if (context.tree.KindAt(path) == ModuleKind::kLora)
    return absl::StrCat(path, ": an adapter on a projection to a latent is not modelled");
  return column ? LookAtLinear(context, path, LinearShape::kColumn).problem
                : ReplicatedProblem(context, path);
}

LatentAttentionConfig SmallLatentAttention(int tp) {
  return {.hidden = SizesFor(tp).hidden,
          .num_heads = tp,
          .q_lora_rank = 2 * tp,
          .kv_lora_rank = 2 * tp,
          .qk_head_dim = 2,
          .qk_pos_emb_head_dim = 2 * tp,
          .v_head_dim = 2,
          .rope = {.rotary_dim = 2 * tp, .interleaved = true}};
}

// The core has no parameters; one of an unknown class is taken at its place's word.
void AssumeCoreAttention(const MapContext& context, const std::string& path) {
  const std::string core = path + ".core_attention";
  if (!context.tree.Has(core) || context.tree.KindAt(core) == ModuleKind::kNeutral) return;
  const std::string sentence = absl::StrCat(PatternOf(core), " (", context.tree.ClassAt(core),
                                            ", not known) attends within each head");
  for (const std::string& known : context.map.assumptions) {
    if (known == sentence) return;
  }
  context.map.assumptions.push_back(sentence);
}

}  // namespace

SmallSizes SizesFor(int tp) { return {.hidden = 4, .units = tp}; }

SelfAttentionConfig StandInMixer(int tp, bool norm_in_front) {
  return {.hidden = SizesFor(tp).hidden,
          .num_query_groups = SizesFor(tp).units,
          .heads_per_group = 1,
          .head_dim = 4,
          .rope = {.rotary_dim = 4},
          .qk_layernorm = false,
          .layer_norm = !norm_in_front};
}

MlpConfig StandInMlp(int tp, bool norm_in_front) {
  return {.hidden = SizesFor(tp).hidden, .ffn = SizesFor(tp).units, .layer_norm = !norm_in_front};
}

std::string MapSelfAttention(const MapContext& context, const std::string& path,
                             const std::string& ours, bool norm_in_front,
                             DecoderLayerConfig& layer) {
  const std::string qkv_path = path + ".linear_qkv", proj_path = path + ".linear_proj";
  const LinearFacts qkv = LookAtLinear(context, qkv_path, LinearShape::kColumn);
  const LinearFacts proj = LookAtLinear(context, proj_path, LinearShape::kRow);
  for (const std::string& problem :
       {qkv.problem, proj.problem, NormProblem(qkv_path, qkv.norm, norm_in_front),
        GroupsProblem(context)}) {
    if (!problem.empty()) return problem;
  }
  SelfAttentionConfig config = StandInMixer(context.tp, norm_in_front);
  if (!MapQkNorms(context, path, ours, &config.qk_layernorm))
    return absl::StrCat(path, " has only one of q_layernorm and k_layernorm");
  config.bias = qkv.bias || proj.bias;
  MapLinear(context, qkv_path, ours + ".linear_qkv", LinearShape::kColumn);
  MapLinear(context, proj_path, ours + ".linear_proj", LinearShape::kRow);
  AssumeCoreAttention(context, path);
  layer.mixer = config;
  return "";
}

std::string MapGatedDeltaNet(const MapContext& context, const std::string& path,
                             const std::string& ours, bool norm_in_front,
                             DecoderLayerConfig& layer) {
  const std::string out_path = path + ".out_proj";
  GatedDeltaNetConfig config = {.hidden = SizesFor(context.tp).hidden,
                                .num_key_heads = SizesFor(context.tp).units,
                                .num_value_heads = SizesFor(context.tp).units,
                                .key_head_dim = 2,
                                .value_head_dim = 2,
                                .region_marks = RegionMarks::kKeep,
                                .decoupled_norm = norm_in_front};
  bool fused_norm = false;
  for (const std::string& problem :
       {InProjectionsProblem(context, path, &fused_norm),
        LookAtLinear(context, out_path, LinearShape::kRow).problem,
        NormProblem(path, fused_norm, norm_in_front), ModeOf(context, path, &config.mode)}) {
    if (!problem.empty()) return problem;
  }
  for (const std::string& name : InProjections(context, path))
    MapLinear(context, Joined(path, name), ours + ".in_proj", LinearShape::kColumn);
  MapLinear(context, out_path, ours + ".out_proj", LinearShape::kRow);
  MapNorm(context, path + ".out_norm", ours + ".out_norm");
  MapParam(context, path + ".conv1d", "weight", ours + ".conv1d.weight");
  MapParam(context, path + ".conv1d", "bias", ours + ".conv1d.weight");
  MapParam(context, path, "A_log", ours + ".A_log");
  MapParam(context, path, "dt_bias", ours + ".dt_bias");
  layer.mixer = config;
  return "";
}

std::string MapLatentAttention(const MapContext& context, const std::string& path,
                               const std::string& ours, bool norm_in_front,
                               DecoderLayerConfig& layer) {
  const auto at = [&](const char* name) { return Joined(path, name); };
  if (!context.tree.Has(at("linear_q_down_proj")))
    return absl::StrCat(path, " has no latent of the queries, which is not modelled");
  if (!norm_in_front) return absl::StrCat(path, " has no norm in front of it");
  LatentAttentionConfig config = SmallLatentAttention(context.tp);
  const bool column = context.tree.KindAt(at("linear_kv_down_proj")) == ModuleKind::kColumnLinear;
  if (column) config.down_projection = DownProjection::kColumnParallel;
  config.standalone_norms = context.tree.Has(at("kv_layernorm"));
  const LinearFacts q_up = LookAtLinear(context, at("linear_q_up_proj"), LinearShape::kColumn);
  const LinearFacts kv_up = LookAtLinear(context, at("linear_kv_up_proj"), LinearShape::kColumn);
  for (const std::string& problem :
       {q_up.problem, kv_up.problem,
        LookAtLinear(context, at("linear_proj"), LinearShape::kRow).problem,
        DownProblem(context, at("linear_q_down_proj"), column),
        DownProblem(context, at("linear_kv_down_proj"), column),
        NormProblem(at("linear_q_up_proj"), q_up.norm, context.tree.Has(at("q_layernorm"))),
        NormProblem(at("linear_kv_up_proj"), kv_up.norm, config.standalone_norms)}) {
    if (!problem.empty()) return problem;
  }
  for (const char* name : {"linear_q_up_proj", "linear_kv_up_proj"})
    MapLinear(context, at(name), Joined(ours, name), LinearShape::kColumn);
  MapLinear(context, at("linear_proj"), ours + ".linear_proj", LinearShape::kRow);
  for (const char* name : {"linear_q_down_proj", "linear_kv_down_proj"})
    MapParam(context, at(name), "weight", Joined(ours, name) + ".weight");
  for (const char* name : {"q_layernorm", "kv_layernorm"})
    MapNorm(context, at(name), Joined(ours, name));
  AssumeCoreAttention(context, path);
  layer.mixer = config;
  return "";
}

std::string MapMlp(const MapContext& context, const std::string& path, const std::string& ours,
                   bool norm_in_front, DecoderLayerConfig& layer) {
  const std::string fc1_path = path + ".linear_fc1", fc2_path = path + ".linear_fc2";
  const LinearFacts fc1 = LookAtLinear(context, fc1_path, LinearShape::kColumn);
  const LinearFacts fc2 = LookAtLinear(context, fc2_path, LinearShape::kRow);
  for (const std::string& problem :
       {fc1.problem, fc2.problem, NormProblem(fc1_path, fc1.norm, norm_in_front)}) {
    if (!problem.empty()) return problem;
  }
  MlpConfig config = StandInMlp(context.tp, norm_in_front);
  config.bias = fc1.bias || fc2.bias;
  MapLinear(context, fc1_path, ours + ".linear_fc1", LinearShape::kColumn);
  MapLinear(context, fc2_path, ours + ".linear_fc2", LinearShape::kRow);
  layer.mlp = config;
  return "";
}

}  // namespace sumonce::lint

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

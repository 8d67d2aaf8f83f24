#include "capture/lint/scenario_text.h"

#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "sim/simulator.h"

namespace sumonce::lint {
namespace {

constexpr char kLayers[] = "decoder.layers.";

// The layer of a parameter of the model; -1: in none.
int LayerOf(const std::string& param) {
  int layer = -1;
  if (!param.starts_with(kLayers)) return -1;
  const std::string rest = param.substr(sizeof(kLayers) - 1);
  return absl::SimpleAtoi(rest.substr(0, rest.find('.')), &layer) ? layer : -1;
}

std::string Quoted(const std::string& text) {
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text), "\"");
}

// The kept layers of a model, numbered anew.
class Excerpt {
 public:
  Excerpt(const Statements& statements, const Faults& faults) : statements_(statements) {
    std::set<std::pair<std::string, Mechanism>> shown;
    bool upstream = false;
    for (const auto& [name, mechanism] : faults) {
      upstream = upstream || mechanism == Mechanism::kUpstream;
      const int layer = LayerOf(OursOf(name));
      if (layer >= 0 && shown.insert({PatternOf(name), mechanism}).second) Keep(layer);
    }
    // What is inherited shows below.
    if (upstream && !kept_.empty() && kept_.begin()->first > 0) Keep(kept_.begin()->first - 1);
    if (kept_.empty() && !scenario().model.layers.empty()) Keep(0);
    int next = 0;
    for (auto& [layer, number] : kept_) number = next++;
  }

  const Scenario& scenario() const { return statements_.map.scenario; }
  const std::map<int, int>& kept() const { return kept_; }

  // The model's name of a manifest's parameter; "" if it has none.
  std::string OursOf(const std::string& name) const {
    const auto found = statements_.map.params.find(name);
    return found == statements_.map.params.end() ? "" : found->second;
  }

  // In the excerpt's numbers; "" if its layer was left out.
  std::string NameOf(const std::string& ours) const {
    const int layer = LayerOf(ours);
    if (layer < 0) return ours;
    const auto number = kept_.find(layer);
    if (number == kept_.end()) return "";
    const size_t rest = ours.find('.', sizeof(kLayers) - 1);
    return absl::StrCat(kLayers, number->second, ours.substr(rest));
  }

 private:
  void Keep(int layer) { kept_[layer] = 0; }

  const Statements& statements_;
  std::map<int, int> kept_;
};

void WriteMixer(const DecoderLayerConfig& layer, std::string& out) {
  if (const auto* attention = std::get_if<SelfAttentionConfig>(&layer.mixer)) {
    absl::StrAppend(&out, "    self_attention {\n      num_heads: ",
                    attention->num_query_groups * attention->heads_per_group,
                    "\n      num_query_groups: ", attention->num_query_groups,
                    "\n      head_dim: ", attention->head_dim, "\n",
                    attention->qk_layernorm ? "      qk_layernorm: true\n" : "", "    }\n");
  }
  if (const auto* gdn = std::get_if<GatedDeltaNetConfig>(&layer.mixer)) {
    absl::StrAppend(&out, "    linear_attention {\n      num_key_heads: ", gdn->num_key_heads,
                    "\n      num_value_heads: ", gdn->num_value_heads,
                    "\n      key_head_dim: ", gdn->key_head_dim,
                    "\n      value_head_dim: ", gdn->value_head_dim, "\n",
                    gdn->mode == GdnMode::kGatherRegion ? "      mode: GATHER_REGION\n" : "",
                    gdn->decoupled_norm ? "      decoupled_norm: true\n" : "", "    }\n");
  }
}

void WriteLatentAttention(const LatentAttentionConfig& latent, std::string& out) {
  absl::StrAppend(
      &out, "    multi_latent_attention {\n      num_heads: ", latent.num_heads,
      "\n      q_lora_rank: ", latent.q_lora_rank, "\n      kv_lora_rank: ", latent.kv_lora_rank,
      "\n      qk_head_dim: ", latent.qk_head_dim,
      "\n      qk_pos_emb_head_dim: ", latent.qk_pos_emb_head_dim,
      "\n      v_head_dim: ", latent.v_head_dim, "\n",
      latent.down_projection == DownProjection::kColumnParallel
          ? "      down_projection: COLUMN_PARALLEL\n"
          : "",
      latent.standalone_norms ? "      standalone_norms: true\n" : "", "    }\n");
}

void WriteLayer(const DecoderLayerConfig& layer, std::string& out) {
  absl::StrAppend(&out, "  layer {\n");
  WriteMixer(layer, out);
  if (const auto* latent = std::get_if<LatentAttentionConfig>(&layer.mixer))
    WriteLatentAttention(*latent, out);
  if (layer.mlp) absl::StrAppend(&out, "    mlp { ffn: ", layer.mlp->ffn, " }\n");
  const bool attention = std::holds_alternative<SelfAttentionConfig>(layer.mixer);
  if (layer.input_layernorm && attention) absl::StrAppend(&out, "    input_layernorm: true\n");
  if (layer.pre_mlp_layernorm) absl::StrAppend(&out, "    pre_mlp_layernorm: true\n");
  absl::StrAppend(&out, "  }\n");
}

bool HasBias(const DecoderLayerConfig& layer) {
  const auto* attention = std::get_if<SelfAttentionConfig>(&layer.mixer);
  return (attention && attention->bias) || (layer.mlp && layer.mlp->bias);
}

void WriteModel(const Excerpt& excerpt, std::string& out) {
  const ModelConfig& model = excerpt.scenario().model;
  absl::StrAppend(&out, "model {\n  vocab: ", model.vocab, "\n  hidden: ", model.hidden, "\n");
  bool bias = false;
  for (const auto& [layer, number] : excerpt.kept()) {
    WriteLayer(model.layers[layer], out);
    bias = bias || HasBias(model.layers[layer]);
  }
  if (bias) absl::StrAppend(&out, "  add_bias_linear: true\n");
  if (model.max_positions > 0)
    absl::StrAppend(&out, "  max_position_embeddings: ", model.max_positions, "\n");
  absl::StrAppend(&out, "}\n");
}

bool TrainsBase(const Statements& statements) {
  for (const auto& [name, statement] : statements.params) {
    if (name.find(".lora_") == std::string::npos) return true;
  }
  return false;
}

void WriteLora(const Excerpt& excerpt, const Statements& statements, std::string& out) {
  const LoraConfig& lora = excerpt.scenario().model.common.lora;
  std::set<std::string> targets;
  for (const std::string& target : lora.targets) {
    const std::string name = excerpt.NameOf(target + ".");
    if (!name.empty()) targets.insert(name.substr(0, name.size() - 1));
  }
  if (!lora.enabled || targets.empty()) return;
  absl::StrAppend(&out, "lora {\n  r: ", lora.r, "\n");
  for (const std::string& target : targets)
    absl::StrAppend(&out, "  target: ", Quoted(target), "\n");
  absl::StrAppend(&out, TrainsBase(statements) ? "  train_base: true\n" : "", "}\n");
}

std::string MarkLine(const char* what, bool set, const std::string& param, Mark mark) {
  std::string name(Name(mark));
  for (char& c : name) c = absl::ascii_toupper(static_cast<unsigned char>(c));
  return absl::StrCat(what, " { ", set ? "set_mark" : "clear_mark", " { param: ", Quoted(param),
                      " mark: ", name, " } }\n");
}

// Marks as they were found, where the model's constructors write others.
void WriteDefects(const Excerpt& excerpt, const Statements& statements, std::string& out) {
  for (const auto& [layer, number] : excerpt.kept()) {
    const auto* gdn =
        std::get_if<GatedDeltaNetConfig>(&excerpt.scenario().model.layers[layer].mixer);
    if (!gdn || gdn->mode != GdnMode::kGatherRegion) continue;
    absl::StrAppend(&out, "defect { region_marks { module: \"", kLayers, number,
                    ".self_attention\" marks: KEEP } }\n");
  }
  Model model(EffectiveModel(excerpt.scenario()));
  std::set<std::string> written;
  for (const auto& [name, statement] : statements.params) {
    const std::string ours = excerpt.OursOf(name), kept = ours.empty() ? "" : excerpt.NameOf(ours);
    const Param* param = kept.empty() ? nullptr : model.params().Find(ours);
    if (!param || !written.insert(kept).second) continue;
    const Marks &built = param->marks, &found = statement.marks;
    if (built.sequence_parallel != found.sequence_parallel)
      out += MarkLine("defect", found.sequence_parallel, kept, Mark::kSequenceParallel);
    if (built.average_gradients_across_tp_domain != found.average_gradients_across_tp_domain) {
      out += MarkLine("defect", found.average_gradients_across_tp_domain, kept,
                      Mark::kAverageGradientsAcrossTpDomain);
    }
  }
}

std::string AxisText(const std::optional<Axis>& axis) {
  if (!axis) return "";
  std::string name(Name(*axis));
  for (char& c : name) c = absl::ascii_toupper(static_cast<unsigned char>(c));
  return absl::StrCat(" axis: ", name);
}

void WriteExpectations(const Excerpt& excerpt, const Statements& statements, std::string& out) {
  std::set<std::string> written, sums;
  std::string cures;
  for (const auto& [name, statement] : statements.params) {
    const Proof& proof = statement.proof;
    if (proof.outcome != Outcome::kWrong) continue;
    const std::string ours = excerpt.OursOf(name), kept = ours.empty() ? "" : excerpt.NameOf(ours);
    if (kept.empty() || !written.insert(kept).second) continue;
    const bool factor = proof.coefficient.find("none") == std::string::npos;
    absl::StrAppend(&out, "expect { param: ", Quoted(kept),
                    " mechanism: ", ToAbsl(Name(proof.mechanism)), AxisText(proof.axis),
                    factor && !proof.coefficient.empty()
                        ? absl::StrCat(" coefficient: ", Quoted(proof.coefficient))
                        : "",
                    " }\n");
    if (!statement.head.empty()) sums.insert(statement.proof.operation);
    if (!statement.cure) continue;
    for (const MarkEdit& edit : statement.cure->edits)
      cures += MarkLine("cure", edit.set, kept, edit.mark);
  }
  for (const std::string& operation : sums) {
    const size_t layer = operation.find(".self_attention");
    absl::StrAppend(&cures, "cure { collective { operation: ",
                    Quoted("decoder.layers.*" + operation.substr(layer)),
                    " direction: BACKWARD map: SUM } }\n");
  }
  out += cures;
}

}  // namespace

Faults FaultsOf(const Statements& statements) {
  Faults faults;
  for (const auto& [name, statement] : statements.params) {
    if (statement.proof.outcome == Outcome::kWrong) faults[name] = statement.proof.mechanism;
  }
  return faults;
}

absl::StatusOr<std::string> ScenarioText(const Statements& statements, const Faults& faults,
                                         const std::string& origin) {
  if (faults.empty()) {
    return absl::InvalidArgumentError(
        "there is no fault to show: a scenario is written of what was found wrong");
  }
  for (const auto& [name, mechanism] : faults) {
    const auto found = statements.params.find(name);
    const bool shown = found != statements.params.end() &&
                       found->second.proof.outcome == Outcome::kWrong &&
                       found->second.proof.mechanism == mechanism &&
                       statements.map.params.contains(name);
    if (shown) continue;
    const std::string why = found == statements.params.end() ? "it is not in the manifest"
                            : found->second.proof.outcome == Outcome::kNoStatement
                                ? found->second.proof.reason
                                : "marks, modules and version alone do not give it";
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", ToAbsl(Name(mechanism)), " cannot be shown in a scenario: ", why));
  }
  const Excerpt excerpt(statements, faults);
  const Scenario& scenario = excerpt.scenario();
  std::string out = absl::StrCat(
      "# proto-file: proto/scenario.proto\n# proto-message: sumonce.proto.Scenario\n",
      "# The layers, marks and mesh of ", absl::Utf8SafeCEscape(origin), " that show the fault.\n",
      "mesh { tp: ", scenario.mesh.tp, " dp: ", scenario.mesh.dp, " }\n",
      "sequence_parallel: ", scenario.sequence_parallel ? "true" : "false", "\n");
  WriteModel(excerpt, out);
  WriteLora(excerpt, statements, out);
  absl::StrAppend(&out, "data { sequence: ", scenario.data.sequence, " }\n",
                  "loss: ", scenario.loss == LossMode::kPerToken ? "PER_TOKEN" : "MEAN_OF_CELLS",
                  "\nfinalizer: ", Quoted(scenario.finalizer), "\n",
                  "qk_layernorm: ", scenario.qk_layernorm ? "true" : "false", "\n");
  WriteDefects(excerpt, statements, out);
  WriteExpectations(excerpt, statements, out);
  return out;
}

}  // namespace sumonce::lint

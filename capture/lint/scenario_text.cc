#include "capture/lint/scenario_text.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "capture/lint/prove_manifest.h"
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
    // Kinds of parameters with their mechanisms, and where each shows.
    std::map<std::pair<std::string, Mechanism>, std::set<int>> shown;
    for (const auto& [name, mechanism] : faults) {
      const std::string& head = statements.params.at(name).head;
      const int layer = LayerOf(OursOf(head.empty() ? name : head));
      if (layer >= 0 && head.empty()) shown[{PatternOf(name), mechanism}].insert(layer);
      if (layer >= 0 && !head.empty()) kept_[layer] = 0;
    }
    for (const auto& [kind, layers] : shown) {
      const auto known = [&](int layer) { return kept_.contains(layer); };
      if (std::none_of(layers.begin(), layers.end(), known)) kept_[*layers.begin()] = 0;
    }
    if (kept_.empty() && !whole().model.layers.empty()) kept_[0] = 0;
    int next = 0;
    for (auto& [layer, number] : kept_) number = next++;
    SetScenario();
  }

  const Scenario& scenario() const { return scenario_; }
  const std::map<int, int>& kept() const { return kept_; }  // layer of the model -> its number here

  // The model's name of a manifest's parameter; "" if it has none.
  std::string OursOf(const std::string& name) const {
    const auto found = statements_.map.params.find(name);
    return found == statements_.map.params.end() ? "" : found->second;
  }
  // The same in the excerpt; "" if its layer was left out.
  std::string KeptOf(const std::string& name) const {
    const std::string ours = OursOf(name);
    return ours.empty() ? "" : Renumbered(ours);
  }

 private:
  const Scenario& whole() const { return statements_.map.scenario; }

  std::string Renumbered(const std::string& ours) const {
    const int layer = LayerOf(ours);
    if (layer < 0) return ours;
    const auto number = kept_.find(layer);
    if (number == kept_.end()) return "";
    return absl::StrCat(kLayers, number->second, ours.substr(ours.find('.', sizeof(kLayers) - 1)));
  }

  void SetScenario() {
    scenario_ = whole();
    scenario_.model.layers.clear();
    for (const auto& [layer, number] : kept_)
      scenario_.model.layers.push_back(whole().model.layers[layer]);
    LoraConfig& lora = scenario_.model.common.lora;
    std::set<std::string> targets;
    for (const std::string& target : lora.targets) {
      const std::string name = Renumbered(target + ".");
      if (!name.empty()) targets.insert(name.substr(0, name.size() - 1));
    }
    lora.targets.assign(targets.begin(), targets.end());
    lora.enabled = !targets.empty();
  }

  const Statements& statements_;
  std::map<int, int> kept_;
  Scenario scenario_;
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
  absl::StrAppend(&out, "    multi_latent_attention {\n      num_heads: ", latent.num_heads,
                  "\n      q_lora_rank: ", latent.q_lora_rank,
                  "\n      kv_lora_rank: ", latent.kv_lora_rank,
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

void WriteModel(const ModelConfig& model, std::string& out) {
  absl::StrAppend(&out, "model {\n  vocab: ", model.vocab, "\n  hidden: ", model.hidden, "\n");
  for (const DecoderLayerConfig& layer : model.layers) WriteLayer(layer, out);
  if (std::any_of(model.layers.begin(), model.layers.end(), HasBias))
    absl::StrAppend(&out, "  add_bias_linear: true\n");
  if (model.max_positions > 0)
    absl::StrAppend(&out, "  max_position_embeddings: ", model.max_positions, "\n");
  absl::StrAppend(&out, "}\n");
}

bool TrainsBase(const Statements& statements) {
  return std::any_of(statements.params.begin(), statements.params.end(), [](const auto& entry) {
    return entry.first.find(".lora_") == std::string::npos;
  });
}

void WriteLora(const LoraConfig& lora, bool train_base, std::string& out) {
  if (!lora.enabled) return;
  absl::StrAppend(&out, "lora {\n  r: ", lora.r, "\n");
  for (const std::string& target : lora.targets)
    absl::StrAppend(&out, "  target: ", Quoted(target), "\n");
  absl::StrAppend(&out, train_base ? "  train_base: true\n" : "", "}\n");
}

// Where dense parameters are reduced over the experts' groups.
std::string ExpertSizes(const MeshSizes& mesh) {
  return mesh.etp > 0 ? absl::StrCat(" etp: ", mesh.etp) : "";
}

std::string Upper(std::string_view name) { return absl::AsciiStrToUpper(ToAbsl(name)); }

std::string MarkLine(const char* what, bool set, const std::string& param, Mark mark) {
  return absl::StrCat(what, " { ", set ? "set_mark" : "clear_mark", " { param: ", Quoted(param),
                      " mark: ", Upper(Name(mark)), " } }\n");
}

// Marks as they were found, where the model's constructors write others.
void WriteDefects(const Excerpt& excerpt, const Statements& statements, bool norm,
                  std::string& out) {
  const std::vector<DecoderLayerConfig>& layers = excerpt.scenario().model.layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto* gdn = std::get_if<GatedDeltaNetConfig>(&layers[i].mixer);
    if (!gdn || gdn->mode != GdnMode::kGatherRegion) continue;
    absl::StrAppend(&out, "defect { region_marks { module: \"", kLayers, i,
                    ".self_attention\" marks: KEEP } }\n");
  }
  Model model(EffectiveModel(excerpt.scenario()));
  std::set<std::string> written;
  for (const auto& [name, statement] : statements.params) {
    const std::string kept = excerpt.KeptOf(name);
    const Param* param = kept.empty() ? nullptr : model.params().Find(kept);
    if (!param || !written.insert(kept).second) continue;
    const Marks &built = param->marks, &found = statement.marks;
    if (built.sequence_parallel != found.sequence_parallel)
      out += MarkLine("defect", found.sequence_parallel, kept, Mark::kSequenceParallel);
    if (built.average_gradients_across_tp_domain != found.average_gradients_across_tp_domain) {
      out += MarkLine("defect", found.average_gradients_across_tp_domain, kept,
                      Mark::kAverageGradientsAcrossTpDomain);
    }
    if (built.allreduce != found.allreduce)
      out += MarkLine("defect", found.allreduce, kept, Mark::kAllreduce);
    if (norm && built.tensor_model_parallel != found.tensor_model_parallel)
      out += MarkLine("defect", found.tensor_model_parallel, kept, Mark::kTensorModelParallel);
  }
}

void WriteExpectation(const Proof& proof, const std::string& operation, std::string& out) {
  absl::StrAppend(&out, "expect {\n  param: ", Quoted(proof.param),
                  "\n  mechanism: ", ToAbsl(Name(proof.mechanism)), "\n");
  if (proof.axis && operation.empty())
    absl::StrAppend(&out, "  axis: ", Upper(Name(*proof.axis)), "\n");
  if (!proof.coefficient.empty() && proof.coefficient.find("none") == std::string::npos)
    absl::StrAppend(&out, "  coefficient: ", Quoted(proof.coefficient), "\n");
  if (!operation.empty()) absl::StrAppend(&out, "  operation: ", Quoted(operation), "\n");
  absl::StrAppend(&out, "}\n");
}

// What the proof says of the excerpt under the marks as found, and the cures that were tried.
void WriteExpectations(const Excerpt& excerpt, const Statements& statements, bool norm,
                       std::string& out) {
  const ProofRun run = Prove(excerpt.scenario(), {});
  const ManifestFinalizer finalizer(run, excerpt.scenario());
  std::set<std::string> written, sums;
  std::string cures;
  bool miscounted = false;
  for (const auto& [name, statement] : statements.params) {
    const std::string kept = excerpt.KeptOf(name);
    const auto state = run.before.find(kept);
    if (state == run.before.end() || !written.insert(kept).second) continue;
    Proof proof = run.proofs.at(kept);
    const bool counted_wrongly = norm && !statement.norm_miscount.empty();
    if (counted_wrongly) {
      const bool marked = statement.marks.tensor_model_parallel;
      cures += MarkLine("cure", !marked, kept, Mark::kTensorModelParallel);
    }
    miscounted |= counted_wrongly;
    if (state->second.ok()) {
      const Param* param = run.model->params().Find(kept);
      proof =
          finalizer.Finalized(kept, statement.marks,
                              {state->second, param->shards.Target(*run.mesh)}, finalizer.config());
      if (proof.outcome == Outcome::kRight) continue;
      WriteExpectation(proof, "", out);
    } else {
      const bool own = proof.mechanism == Mechanism::kMixedUse;
      if (!own) proof.mechanism = Mechanism::kUpstream;
      WriteExpectation(proof, own ? "" : proof.operation, out);
      sums.insert(proof.operation);
    }
    if (!statement.cure) continue;
    for (const MarkEdit& edit : statement.cure->edits)
      cures += MarkLine("cure", edit.set, kept, edit.mark);
  }
  for (const std::string& operation : sums) {
    absl::StrAppend(&cures, "cure { collective { operation: ", Quoted(operation),
                    " direction: BACKWARD map: SUM } }\n");
  }
  if (miscounted) out += "expect { mechanism: NORM_MISCOUNT axis: TP }\n";
  out += cures;
}

// A parameter whose gradient arrives wrong may be called by its own rows, too.
bool Shows(const ParamStatement& statement, Mechanism mechanism) {
  if (mechanism == Mechanism::kNormMiscount) return !statement.norm_miscount.empty();
  if (statement.proof.outcome != Outcome::kWrong) return false;
  const bool arrives = mechanism == Mechanism::kMixedUse || mechanism == Mechanism::kUpstream;
  return statement.proof.mechanism == mechanism || (arrives && !statement.head.empty());
}

}  // namespace

Faults FaultsOf(const Statements& statements) {
  Faults faults;
  for (const auto& [name, statement] : statements.params) {
    if (statement.proof.outcome == Outcome::kWrong) faults[name] = statement.proof.mechanism;
  }
  AddNormFaults(statements, faults);
  return faults;
}

void AddNormFaults(const Statements& statements, Faults& faults) {
  for (const auto& [name, statement] : statements.params) {
    if (!statement.norm_miscount.empty() && statements.map.params.contains(name))
      faults.emplace(name, Mechanism::kNormMiscount);
  }
}

absl::StatusOr<std::string> ScenarioText(const Statements& statements, const Faults& faults,
                                         const std::string& origin) {
  if (faults.empty()) {
    return absl::InvalidArgumentError(
        "there is no fault to show: a scenario is written of what was found wrong");
  }
  for (const auto& [name, mechanism] : faults) {
    const auto found = statements.params.find(name);
    const bool shown = found != statements.params.end() && statements.map.params.contains(name) &&
                       Shows(found->second, mechanism);
    if (shown) continue;
    const std::string why = found == statements.params.end() ? "it is not in the manifest"
                            : found->second.proof.outcome == Outcome::kNoStatement
                                ? found->second.proof.reason
                                : "marks, modules and version alone do not give it";
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", ToAbsl(Name(mechanism)), " cannot be shown in a scenario: ", why));
  }
  const bool norm = std::any_of(faults.begin(), faults.end(), [](const auto& fault) {
    return fault.second == Mechanism::kNormMiscount;
  });
  const Excerpt excerpt(statements, faults);
  const Scenario& scenario = excerpt.scenario();
  if (scenario.mesh.ep > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dense gradients are reduced over the experts' groups (allreduce=False) with ep ",
        scenario.mesh.ep, ": a scenario simulates ep 1 only"));
  }
  std::string out = absl::StrCat(
      "# proto-file: proto/scenario.proto\n# proto-message: sumonce.proto.Scenario\n",
      "# The layers, marks and mesh of ", absl::Utf8SafeCEscape(origin), " that show the fault.\n",
      "mesh { tp: ", scenario.mesh.tp, " dp: ", scenario.mesh.dp, ExpertSizes(scenario.mesh),
      " }\n", "sequence_parallel: ", scenario.sequence_parallel ? "true" : "false", "\n");
  WriteModel(scenario.model, out);
  WriteLora(scenario.model.common.lora, TrainsBase(statements), out);
  absl::StrAppend(&out, "data { sequence: ", scenario.data.sequence, " }\n",
                  "loss: ", scenario.loss == LossMode::kPerToken ? "PER_TOKEN" : "MEAN_OF_CELLS",
                  norm ? "\noptimizer { clip_grad: 0.1 }" : "",
                  "\nfinalizer: ", Quoted(scenario.finalizer), "\n",
                  "qk_layernorm: ", scenario.qk_layernorm ? "true" : "false", "\n");
  WriteDefects(excerpt, statements, norm, out);
  WriteExpectations(excerpt, statements, norm, out);
  return out;
}

}  // namespace sumonce::lint

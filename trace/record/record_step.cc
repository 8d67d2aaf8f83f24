#include "trace/record/record_step.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
#include "sim/data.h"
#include "sim/defects/effect.h"
#include "sim/simulator.h"
#include "trace/record/lowering.h"
#include "trace/record/recording_tape.h"

namespace sumonce::trace {
namespace record {
namespace {

constexpr int kSize = 2;
constexpr int64_t kUnits = 4 * kSize;  // of what is cut: 2 a rank at twice the size

int64_t Widened(int64_t units) { return (units + kUnits - 1) / kUnits * kUnits; }

void Widen(DecoderLayerConfig& layer) {
  if (auto* attention = std::get_if<SelfAttentionConfig>(&layer.mixer)) {
    attention->num_query_groups = Widened(attention->num_query_groups);
    attention->rope.cos.clear();  // given tables have the file's positions
    attention->rope.sin.clear();
  }
  if (auto* net = std::get_if<GatedDeltaNetConfig>(&layer.mixer)) {
    const int64_t values = net->num_value_heads / net->num_key_heads;
    net->num_key_heads = Widened(net->num_key_heads);
    net->num_value_heads = values * net->num_key_heads;
  }
  if (auto* latent = std::get_if<LatentAttentionConfig>(&layer.mixer)) {
    const int64_t rotary = latent->qk_pos_emb_head_dim;
    latent->num_heads = Widened(latent->num_heads);
    latent->q_lora_rank = Widened(latent->q_lora_rank);
    latent->kv_lora_rank = Widened(latent->kv_lora_rank + rotary) - rotary;
  }
  if (layer.shared_expert) layer.shared_expert->mlp.ffn = Widened(layer.shared_expert->mlp.ffn);
  if (layer.mlp) layer.mlp->ffn = Widened(layer.mlp->ffn);
}

// One rank's step.
class StepRecorder {
 public:
  StepRecorder(const Scenario& scenario, std::span<const Edit> edits, int size, int rank)
      : scenario_(scenario),
        edits_(edits),
        mesh_(*Mesh::Create({.tp = size})),
        rank_(rank),
        effects_(edits, rank),
        finalize_(EffectiveFinalizeConfig(scenario)),
        graph_(absl::StrCat("tp", size, ".rank", rank)) {}

  absl::StatusOr<Program> Record() {
    ModelConfig config = EffectiveModel(scenario_);
    for (const auto& effect : effects_.all()) effect->OnConfig(config);
    model_ = std::make_unique<Model>(config);
    for (const auto& effect : effects_.all()) effect->OnBuilt(model_->params());
    NameParams();
    SUMONCE_RETURN_IF_ERROR(RunTape());
    for (const auto& effect : effects_.all()) effect->OnBackwardDone(model_->params());
    SUMONCE_RETURN_IF_ERROR(Finalize());
    if (!graph_.failure.empty()) return absl::UnimplementedError(graph_.failure);
    WriteHeader();
    return std::move(graph_.program());
  }

 private:
  void NameParams() {
    for (Param& param : model_->params().all()) {
      const Extents shape = ShapeOf(param.shards.Local(mesh_));
      RecordedParam& recorded = params_[param.name];
      recorded.weight = graph_.Named(TensorKind::kParam, param.name, shape);
      if (!param.requires_grad) continue;
      recorded.grad = graph_.Named(TensorKind::kGrad, param.name, shape);
    }
  }

  absl::Status RunTape() {
    RecordingTape tape(mesh_, rank_, graph_, params_, "");
    effects_.Attach(tape);
    tape.on_term = [this](const Param& param, int grad) { return Term(param, grad); };
    BatchInputs inputs;
    inputs.sequence = scenario_.data.sequence;
    inputs.batch = scenario_.data.micro_batch;
    if (scenario_.model.common.lora.dropout > 0)
      inputs.keeps = [](const std::string&, int64_t) { return true; };
    tape.Backward(model_->Forward(tape, inputs, LossScale(scenario_, mesh_)));
    return tape.status();
  }

  // A rank's own backward that is wrong (sim/defects/local_gradient.cc).
  int Term(const Param& param, int grad) {
    for (const Edit& edit : edits_) {
      if (const auto* scale = std::get_if<ScaleEdit>(&edit.kind);
          scale && ActsOn(scale->ranks, rank_) && GlobMatches(scale->param, param.name))
        grad = graph_.Times(grad, scale->factor);
      if (const auto* permute = std::get_if<PermuteEdit>(&edit.kind);
          permute && ActsOn(permute->ranks, rank_) && GlobMatches(permute->param, param.name))
        grad = graph_.Call("aten.roll", {OfTensor(grad), OfExtents({-1}), OfExtents({0})},
                           graph_.shape(grad));
    }
    return grad;
  }

  absl::Status Finalize() {
    graph_.phase = Phase::kFinalizer;
    graph_.module = "";
    SUMONCE_ASSIGN_OR_RETURN(FinalizePreset preset, Finalizers().Find(scenario_.finalizer));
    for (const auto& effect : effects_.all()) effect->OnPreset(preset);
    SUMONCE_ASSIGN_OR_RETURN(const std::vector<Microbatch> data, MakeData(scenario_, 1));
    double num_tokens = 0;
    for (const Microbatch& microbatch : data) num_tokens += microbatch.num_tokens;
    for (const FinalizeStep& step : preset.steps) {
      for (const CoalescedList& list : CoalescedLists(step, finalize_, model_->params().all())) {
        if (list.rule->times_inverse_tokens) {
          ScaleGradients(list.params, 1.0 / std::max(num_tokens, 1.0));
        } else {
          SUMONCE_RETURN_IF_ERROR(Reduce(list));
        }
      }
    }
    return absl::OkStatus();
  }

  void ScaleGradients(const std::vector<Param*>& params, double factor) {
    for (const Param* param : params) {
      const int grad = params_.at(param->name).grad;
      graph_.Append("aten.mul_.Scalar", {OfTensor(grad), OfNumber(factor)}, {grad}, {grad});
    }
  }

  // One flat buffer, as the frameworks' coalesced calls.
  absl::Status Reduce(const CoalescedList& list) {
    const FinalizeRule& rule = *list.rule;
    const Group group = mesh_.GroupOf(rule.axes, rule.group);
    const int n = mesh_.size(group);
    if (list.params.empty() || n == 1) return absl::OkStatus();
    if (!rule.divided_by.empty()) {
      const Group divisor = mesh_.GroupOf(AxesOfGroup(rule.divided_by), rule.divided_by);
      ScaleGradients(list.params, 1.0 / mesh_.size(divisor));
    }
    if (rule.map == Map::kIdentity) return absl::OkStatus();
    if (rule.map != Map::kSum && rule.map != Map::kAvg) {
      return absl::UnimplementedError(
          absl::StrCat("the finalizer's rule ", rule.name, " is neither a sum nor a mean"));
    }
    std::vector<int> flat;
    for (const Param* param : list.params) {
      const int grad = params_.at(param->name).grad;
      flat.push_back(graph_.Raw(grad, {sumonce::Count(param->shards.Local(mesh_))}));
    }
    const int buffer = graph_.Cat(flat, 0);
    AppendAllReduce(graph_, mesh_.Ranks(group, rank_), rule.map == Map::kSum ? "SUM" : "AVG",
                    buffer);
    int64_t begin = 0;
    for (const Param* param : list.params) {
      const int grad = params_.at(param->name).grad;
      const int64_t end = begin + sumonce::Count(param->shards.Local(mesh_));
      const int piece = graph_.Raw(graph_.RawSlice(buffer, 0, begin, end), graph_.shape(grad));
      graph_.Append("aten.copy_", {OfTensor(grad), OfTensor(piece)}, {grad}, {grad});
      begin = end;
    }
    return absl::OkStatus();
  }

  // Marks as they stand after the step.
  void WriteHeader() {
    Program& program = graph_.program();
    program.axis = "tp";
    program.size = mesh_.world_size();
    program.rank = rank_;
    for (int r = 0; r < program.size; ++r) program.group.push_back(r);
    for (const Param& param : model_->params().all()) {
      ParamInfo info;
      info.name = graph_.Keep(param.name);
      info.shape = ShapeOf(param.shards.Local(mesh_));
      info.trainable = param.requires_grad;
      if (param.marks.sequence_parallel) info.marks[Name(Mark::kSequenceParallel)] = "true";
      if (param.marks.average_gradients_across_tp_domain)
        info.marks[Name(Mark::kAverageGradientsAcrossTpDomain)] = "true";
      if (param.marks.tensor_model_parallel) info.marks["tensor_model_parallel"] = "true";
      program.params.push_back(std::move(info));
    }
  }

  const Scenario& scenario_;
  std::span<const Edit> edits_;
  const Mesh mesh_;
  const int rank_;
  Effects effects_;
  const FinalizeConfig finalize_;
  Graph graph_;
  std::unique_ptr<Model> model_;
  std::map<std::string, RecordedParam> params_;
};

}  // namespace
}  // namespace record

std::string WhyNotRecorded(const Scenario& scenario) {
  if (!scenario.data.packed.empty())
    return "sequences are packed, and a trace has one length for all";
  if (scenario.model.common.row_bias == RowBias::kBeforeReductionByOwner)
    return "one rank alone adds a bias, and the ranks of a trace run one program";
  if (scenario.mesh.kv > 0)
    return "ranks share a key-value group: tp is two axes, and a trace is of one";
  if (scenario.model.common.lora.per_sub_projection)
    return "adapters of sub-projections are joined row by row with zeros, which the prover of "
           "traces refuses";
  for (const Edit& edit : scenario.defects) {
    if (std::holds_alternative<CommunicationEdit>(edit.kind))
      return "the fault is the transport's: the program, which is what a trace holds, is right";
    if (std::holds_alternative<StaleEdit>(edit.kind))
      return "the fault comes from an earlier step, and a trace is of one";
    if (std::holds_alternative<MicrobatchEdit>(edit.kind))
      return "the fault is another microbatch's, and a trace is of one";
  }
  return "";
}

Scenario AsRecorded(const Scenario& scenario) {
  Scenario recorded = scenario;
  recorded.mesh = {.tp = record::kSize};
  for (DecoderLayerConfig& layer : recorded.model.layers) record::Widen(layer);
  recorded.model.vocab = record::Widened(recorded.model.vocab);
  recorded.data.sequence = record::Widened(recorded.data.sequence);
  recorded.data.from_file = "";
  return recorded;
}

absl::StatusOr<TraceSet> RecordStep(const Scenario& recorded, std::span<const Edit> edits) {
  const auto record = [&](std::span<const Edit> edits, int size, int rank) {
    return record::StepRecorder(recorded, edits, size, rank).Record();
  };
  TraceSet set;
  set.name = recorded.name;
  for (int rank = 0; rank < record::kSize; ++rank) {
    SUMONCE_ASSIGN_OR_RETURN(Program program, record(edits, record::kSize, rank));
    set.ranks.push_back(std::move(program));
  }
  SUMONCE_ASSIGN_OR_RETURN(set.twice, record(edits, 2 * record::kSize, 0));
  SUMONCE_ASSIGN_OR_RETURN(set.whole, record({}, 1, 0));
  return set;
}

}  // namespace sumonce::trace

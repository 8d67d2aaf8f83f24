#include "sim/simulator.h"

#include <algorithm>

#include "base/digest.h"
#include "base/status.h"
#include "sim/data.h"
#include "sim/defects/effect.h"
#include "sim/grad_norm.h"
#include "sim/optimizer.h"
#include "sim/remote/remote.h"
#include "sim/wrapped_world.h"
#include "spmd/whole.h"

namespace sumonce {
namespace {

bool ClearsAllreduce(const Edit& edit) {
  const auto* mark = std::get_if<MarkEdit>(&edit.kind);
  return mark && mark->mark == Mark::kAllreduce && !mark->set;
}

// One rank: its model, its effects, and what it leaves behind.
class RankRun {
 public:
  RankRun(const Scenario& scenario, std::shared_ptr<const Mesh> mesh, int rank,
          std::span<const Edit> edits, const SimOptions& options,
          const std::vector<std::vector<Microbatch>>& data)
      : scenario_(scenario),
        mesh_(std::move(mesh)),
        rank_(rank),
        effects_(edits, rank),
        options_(options),
        data_(data),
        optimizer_(scenario.optimizer, scenario.precision),
        config_(EffectiveFinalizeConfig(scenario)),
        reduces_experts_(std::any_of(edits.begin(), edits.end(), ClearsAllreduce)) {}

  absl::Status Run(Communicator* world, const Weights& start, const std::vector<int>& recorded,
                   RankRecords& records) {
    SUMONCE_RETURN_IF_ERROR(Build(world, start));
    for (size_t i = 0; i < data_.size(); ++i) {
      const int step = static_cast<int>(i) + 1;
      const bool record = std::find(recorded.begin(), recorded.end(), step) != recorded.end();
      StepRecord step_record{.step = step};
      SUMONCE_RETURN_IF_ERROR(Step(data_[i], step_record));
      if (record) records.push_back(std::move(step_record));
    }
    return absl::OkStatus();
  }

  KeptTape kept() const { return kept_; }

 private:
  absl::Status Build(Communicator* world, const Weights& start) {
    ModelConfig config = EffectiveModel(scenario_);
    for (const auto& effect : effects_.all()) effect->OnConfig(config);
    model_ = std::make_shared<Model>(config);
    LoadWeights(start, *mesh_, rank_, model_->params());
    optimizer_.Start(model_->params().all());
    for (const auto& effect : effects_.all()) effect->OnBuilt(model_->params());
    SUMONCE_ASSIGN_OR_RETURN(preset_, Finalizers().Find(scenario_.finalizer));
    for (const auto& effect : effects_.all()) effect->OnPreset(preset_);
    if (!world) return absl::OkStatus();
    std::vector<Group> groups = {mesh_->GroupOf(Axis::kTp), mesh_->GroupOf(Axis::kDp),
                                 mesh_->GroupOf(Axis::kKvCopy),
                                 mesh_->GroupOf({Axis::kDp, Axis::kTp}, "tp_dp")};
    if (reduces_experts_) groups.push_back(mesh_->GroupOf(Axis::kEdp));
    SUMONCE_ASSIGN_OR_RETURN(comms_, GroupComms::Create(*world, *mesh_, groups));
    return absl::OkStatus();
  }

  absl::Status Step(const std::vector<Microbatch>& microbatches, StepRecord& record) {
    for (Param& param : model_->params().all()) {
      record.params[param.name].weight_before = param.weight;
      if (param.requires_grad && !Keeps(param)) param.main_grad = Tensor(param.weight.dims());
    }
    for (size_t i = 0; i < microbatches.size(); ++i) {
      SUMONCE_RETURN_IF_ERROR(RunMicrobatch(microbatches[i], static_cast<int>(i), record));
    }
    for (const auto& effect : effects_.all()) effect->OnBackwardDone(model_->params());
    SUMONCE_RETURN_IF_ERROR(Finalize(record));
    SUMONCE_RETURN_IF_ERROR(Clip(record));
    optimizer_.Step(model_->params().all());
    for (Param& param : model_->params().all()) {
      ParamRecord& entry = record.params[param.name];
      entry.weight_after = param.weight;
      entry.marks = param.marks;
    }
    return absl::OkStatus();
  }

  absl::Status Clip(StepRecord& record) {
    if (scenario_.optimizer.clip_grad == 0) return absl::OkStatus();
    SUMONCE_ASSIGN_OR_RETURN(record.grad_norm,
                             ComputeGradNorm(scenario_.optimizer, preset_, *mesh_, rank_, comms_,
                                             model_->params().all()));
    ScaleGradients(record.grad_norm->clip_factor, model_->params().all());
    for (Param& param : model_->params().all())
      RoundInto(scenario_.precision.main_weight_dtype(), param.main_grad);
    return absl::OkStatus();
  }

  // A kept buffer is a fault of the second step on: nothing is stale in the first.
  bool Keeps(const Param& param) const {
    return std::any_of(effects_.all().begin(), effects_.all().end(),
                       [&](const auto& effect) { return effect->KeepsBuffer(param); });
  }

  absl::Status RunMicrobatch(const Microbatch& microbatch, int index, StepRecord& record) {
    auto tape = std::make_shared<NumericTape>(*mesh_, rank_, &comms_);
    if (options_.keep_tapes && record.step == options_.keep_step &&
        index == options_.keep_microbatch) {
      tape->KeepGradients();
      kept_ = {mesh_, model_, tape};
    }
    effects_.Attach(*tape);
    const Value loss = model_->Forward(*tape, InputsOf(microbatch), LossScale(scenario_, *mesh_));
    tape->Backward(loss);
    SUMONCE_RETURN_IF_ERROR(tape->status());
    record.loss += tape->value(loss).data()[0];
    record.num_tokens += microbatch.num_tokens;
    AddTerms(*tape, index, record);
    return absl::OkStatus();
  }

  // The gradient of every use, summed into the microbatch's term, and that into main_grad.
  void AddTerms(const NumericTape& tape, int index, StepRecord& record) {
    std::map<Param*, Tensor> terms;
    for (size_t id = 0; id < tape.nodes().size(); ++id) {
      const Tape::Node& node = tape.nodes()[id];
      if (node.kind != Tape::Kind::kUse || !node.param->requires_grad) continue;
      const Tensor grad = tape.grad(static_cast<int>(id)).empty() ? Tensor(node.dims)
                                                                  : tape.grad(static_cast<int>(id));
      Accumulate(record.params[node.param->name].uses[node.name], grad);
      Accumulate(terms[node.param], grad);
    }
    for (Param& param : model_->params().all()) {
      if (!param.requires_grad) continue;
      Tensor term = terms.contains(&param) ? terms[&param].Clone() : Tensor(param.weight.dims());
      int times = 1;
      for (const auto& effect : effects_.all()) {
        effect->OnTerm(param, term);
        times *= effect->TimesCounted(param, index);
      }
      RoundInto(scenario_.precision.grad_dtype(), term);
      for (int i = 0; i < times; ++i) {
        AddInto(param.main_grad, term);
        RoundInto(scenario_.precision.main_grad_dtype(), param.main_grad);
      }
      record.params[param.name].terms.push_back(std::move(term));
    }
  }

  static void Accumulate(Tensor& sum, const Tensor& term) {
    if (sum.empty()) {
      sum = term.Clone();
    } else {
      AddInto(sum, term);
    }
  }

  // Of the call that the parameter travels in, which may bear another rule's name; "": alone.
  static std::string LabelOfCall(const std::vector<FinalizeCall>& calls, const Param& param) {
    for (const FinalizeCall& call : calls) {
      if (std::find(call.params.begin(), call.params.end(), &param) != call.params.end())
        return call.label;
    }
    return "";
  }

  absl::Status Finalize(StepRecord& record) {
    for (Param& param : model_->params().all()) {
      if (param.requires_grad) record.params[param.name].contribution = param.main_grad.Clone();
    }
    int index = 0;  // of the step
    for (const FinalizeStep& step : preset_.steps) {
      const std::vector<FinalizeCall> calls =
          CallsOf(step, config_, *mesh_, model_->params().all());
      SUMONCE_RETURN_IF_ERROR(
          RunFinalizeStep(step, config_, *mesh_, rank_, &comms_, record.num_tokens,
                          scenario_.precision.main_grad_dtype(), model_->params().all()));
      for (Param& param : model_->params().all()) {
        if (!param.requires_grad) continue;
        ParamRecord& entry = record.params[param.name];
        const FinalizeRule* rule = Claiming(step, param, config_);
        entry.rules.push_back(rule ? rule->name : "");
        if (rule && !rule->group.empty() && rule->map != Map::kIdentity) {
          entry.log.push_back({.group = rule->group,
                               .map = rule->map,
                               .divided_by = rule->divided_by,
                               .operation = LabelOfCall(calls, param),
                               .step = index});
        }
        entry.after.push_back(param.main_grad.Clone());
      }
      ++index;
    }
    return absl::OkStatus();
  }

  const Scenario& scenario_;
  std::shared_ptr<const Mesh> mesh_;
  int rank_;
  Effects effects_;
  const SimOptions& options_;
  const std::vector<std::vector<Microbatch>>& data_;
  AdamW optimizer_;
  FinalizeConfig config_;
  bool reduces_experts_;  // over edp, on some rank: all take part in making that group
  FinalizePreset preset_;
  GroupComms comms_;
  std::shared_ptr<Model> model_;
  KeptTape kept_;
};

absl::StatusOr<std::vector<std::vector<Microbatch>>> DataOf(const Scenario& scenario,
                                                            int first_step, int steps) {
  std::vector<std::vector<Microbatch>> data;
  for (int step = first_step; step < first_step + steps; ++step) {
    SUMONCE_ASSIGN_OR_RETURN(std::vector<Microbatch> microbatches, MakeData(scenario, step));
    data.push_back(std::move(microbatches));
  }
  return data;
}

std::string DigestOf(const RunRecord& record) {
  Digest digest;
  for (const RankRecords& rank : record.ranks) {
    for (const StepRecord& step : rank) {
      digest.Add(std::span<const double>(&step.loss, 1));
      if (step.grad_norm) digest.Add(std::span<const double>(&step.grad_norm->norm, 1));
      for (const auto& [name, param] : step.params) {
        digest.Add(name);
        digest.Add(param.contribution.values());
        for (const Tensor& after : param.after) digest.Add(after.values());
        digest.Add(param.weight_after.values());
      }
    }
  }
  return digest.Hex();
}

}  // namespace

ModelConfig EffectiveModel(const Scenario& scenario) {
  ModelConfig config = scenario.model;
  config.common.sequence_parallel = scenario.sequence_parallel && scenario.mesh.tp > 1;
  for (DecoderLayerConfig& layer : config.layers) {
    auto* attention = std::get_if<SelfAttentionConfig>(&layer.mixer);
    if (attention && attention->num_query_groups < scenario.mesh.tp)
      attention->regime = attention->kv_copies ? KvRegime::kCopies : KvRegime::kSlices;
  }
  return config;
}

FinalizeConfig EffectiveFinalizeConfig(const Scenario& scenario) {
  return {.sequence_parallel = scenario.sequence_parallel && scenario.mesh.tp > 1,
          .qk_layernorm = scenario.qk_layernorm,
          .per_token_loss = scenario.loss == LossMode::kPerToken};
}

std::vector<int> RecordedSteps(const Scenario& scenario) {
  std::vector<int> steps;
  for (int step = 1; step < scenario.steps; step += std::max(scenario.record_every, 1))
    steps.push_back(step);
  steps.push_back(scenario.steps);
  return steps;
}

SimResult Simulate(const Scenario& scenario, std::span<const Edit> edits, const Weights& start,
                   const SimOptions& options) {
  SimResult result = options.remote ? SimulateOverProcesses(scenario, edits, start, options)
                                    : SimulateHere(scenario, edits, start, options);
  result.digest = DigestOf(result.record);
  return result;
}

SimResult SimulateHere(const Scenario& scenario, std::span<const Edit> edits, const Weights& start,
                       const SimOptions& options) {
  SimResult result;
  absl::StatusOr<Mesh> mesh = Mesh::Create(scenario.mesh);
  SUMONCE_CHECK(mesh.ok()) << mesh.status();
  const auto shared_mesh = std::make_shared<const Mesh>(*std::move(mesh));
  const absl::StatusOr<std::vector<std::vector<Microbatch>>> data =
      DataOf(scenario, 1, scenario.steps);
  const absl::StatusOr<const Transport*> transport = Transports().Find(options.transport);
  if (!data.ok() || !transport.ok()) {
    result.status = data.ok() ? transport.status() : data.status();
    return result;
  }
  const int world_size = shared_mesh->world_size();
  result.record.ranks.resize(world_size);
  result.tapes.resize(options.keep_tapes ? world_size : 0);
  const std::vector<int> recorded = RecordedSteps(scenario);
  std::unique_ptr<CallRecorder> recorder;
  if (options.now_us)
    recorder = std::make_unique<CallRecorder>(
        world_size, RecorderOptions{options.now_us, options.calls_begin_us});
  const bool own_processes = (*transport)->processes != nullptr;
  result.status =
      (*transport)
          ->run({.world_size = world_size,
                 .executor = options.executor,
                 .native_sums = options.native_sums},
                [&](Communicator& world) {
                  const int rank = world.rank();
                  const Effects effects(edits, rank);
                  WrappedWorld wrapped(world, effects, own_processes, recorder.get());
                  RankRun run(scenario, shared_mesh, rank, edits, options, *data);
                  absl::Status status = wrapped.Ended(
                      run.Run(&wrapped.communicator(), start, recorded, result.record.ranks[rank]));
                  if (options.keep_tapes) result.tapes[rank] = run.kept();
                  return status;
                });
  // Of a transport with a process per rank only this process's calls are here (sim/remote/).
  if (recorder) result.calls = recorder->Take();
  return result;
}

SimResult SimulateReference(const Scenario& as_run, const Weights& start, int first_step, int steps,
                            const SimOptions& options) {
  SimResult result;
  Scenario scenario = as_run;
  scenario.precision = PrecisionConfig();
  const auto mesh = std::make_shared<const Mesh>(*Mesh::Create({}));
  const absl::StatusOr<std::vector<std::vector<Microbatch>>> data =
      DataOf(scenario, first_step, steps);
  if (!data.ok()) {
    result.status = data.status();
    return result;
  }
  std::vector<int> all;
  for (int step = 1; step <= steps; ++step) all.push_back(step);
  result.record.ranks.resize(1);
  RankRun run(scenario, mesh, 0, {}, options, *data);
  result.status = run.Run(nullptr, start, all, result.record.ranks[0]);
  if (options.keep_tapes) result.tapes.push_back(run.kept());
  for (StepRecord& step : result.record.ranks[0]) step.step += first_step - 1;
  return result;
}

Assembled AssembleWeights(const Scenario& scenario, const RunRecord& record, size_t recorded_step) {
  const Mesh mesh = *Mesh::Create(scenario.mesh);
  Model model(EffectiveModel(scenario));
  Assembled assembled;
  for (const Param& param : model.params().all()) {
    std::vector<Tensor> ranks;
    for (const RankRecords& rank : record.ranks) {
      ranks.push_back(rank[recorded_step].params.at(param.name).weight_before);
    }
    Joined joined = Join(param.shards.Target(mesh), mesh, ranks);
    assembled.weights[param.name] = joined.whole;
    if (joined.spread != 0) assembled.drifted.push_back(param.name);
  }
  return assembled;
}

}  // namespace sumonce

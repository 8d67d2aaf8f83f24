#include "verify/prove.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/rank_list.h"
#include "sim/data.h"
#include "sim/defects/effect.h"
#include "sim/simulator.h"
#include "verify/judge.h"
#include "verify/rank_classes.h"

namespace sumonce {
namespace {

// The state of a parameter's gradient: its uses' joined.
State JoinUses(const AbstractTape& tape, const Param& param, bool* used) {
  State joined;
  *used = false;
  for (size_t id = 0; id < tape.nodes().size(); ++id) {
    const Tape::Node& node = tape.nodes()[id];
    if (node.kind != Tape::Kind::kUse || node.param != &param ||
        !tape.has_grad(static_cast<int>(id)))
      continue;
    const State& grad = tape.grad(static_cast<int>(id));
    joined = *used ? Join(joined, grad, static_cast<int>(id)) : grad;
    *used = true;
  }
  return joined;
}

std::vector<std::string> Conditions(const Scenario& scenario, const ParamStore& params) {
  std::vector<std::string> conditions;
  for (const Param& param : params.all()) {
    for (const ShardMap::Cut& cut : param.shards.cuts()) {
      const std::string condition =
          absl::StrCat(ToAbsl(Name(cut.axis)), " divides ", ToAbsl(Name(cut.dim)));
      if (std::find(conditions.begin(), conditions.end(), condition) == conditions.end())
        conditions.push_back(condition);
    }
  }
  if (scenario.sequence_parallel) conditions.push_back("tp divides s");
  if (scenario.mesh.kv > 0) conditions.push_back("tp is a multiple of the key-value groups");
  if (scenario.loss == LossMode::kMeanOfCells) {
    conditions.push_back(
        "mean of cells: equals the global token mean only where every cell counts equally many "
        "tokens");
  }
  return conditions;
}

// The value at which a complete and a partial gradient met: an operand of the operation that sent
// the second. -1: none.
int MetAt(const AbstractTape& tape, const Fault& fault) {
  if (fault.operation < 0 || fault.reason != kMixedUse) return -1;
  const std::vector<int>& operands = tape.nodes()[fault.operation].operands;
  const auto met = std::find_if(operands.begin(), operands.end(), [&](int operand) {
    return tape.has_grad(operand) && tape.grad(operand).lost == fault;
  });
  return met == operands.end() ? -1 : *met;
}

bool IsPartial(const State& state) {
  return !state.lost &&
         std::any_of(state.axes.begin(), state.axes.end(),
                     [](const AxisState& axis) { return axis.layout == Layout::kPartial; });
}

// The reader of a value that sends it a partial gradient; -1: none.
int PartialReader(const AbstractTape& tape, int value) {
  const auto begin = tape.edges().begin(), end = tape.edges().end();
  const auto edge = std::find_if(begin, end, [&](const auto& entry) {
    return entry.first.second == value && IsPartial(entry.second);
  });
  return edge == end ? -1 : edge->first.first;
}

// The communication that a partial gradient has passed last before it met a complete one: where a
// sum is missing. "": none on its way.
std::string UnsummedAt(const AbstractTape& tape, int met) {
  for (int reader = PartialReader(tape, met); reader >= 0; reader = PartialReader(tape, reader)) {
    if (tape.nodes()[reader].kind == Tape::Kind::kCollective) return tape.OperationName(reader);
  }
  return "";
}

// Whether every reader of the value takes some of its entries along `dim` and no more.
bool TakenApart(const AbstractTape& tape, int value, Dim dim) {
  const auto& nodes = tape.nodes();
  return std::all_of(nodes.begin(), nodes.end(), [&](const Tape::Node& reader) {
    const std::vector<int>& operands = reader.operands;
    if (std::find(operands.begin(), operands.end(), value) == operands.end()) return true;
    return reader.kind == Tape::Kind::kLocal && operands.size() == 1 &&
           reader.declaration.linear == Linear(0) && reader.declaration.mixes == SetOf(dim);
  });
}

// Whether the value is what a local operation makes of the parameter's rows, and is taken apart
// along them: then some rows of the gradient are complete and others partial.
bool MadeOfRows(const AbstractTape& tape, int value, const Param& param) {
  if (value < 0 || tape.nodes()[value].kind != Tape::Kind::kLocal) return false;
  const std::vector<int>& operands = tape.nodes()[value].operands;
  const bool made = std::any_of(operands.begin(), operands.end(),
                                [&](int operand) { return tape.nodes()[operand].param == &param; });
  return made && TakenApart(tape, value, param.shards.whole()[0].dim);
}

Proof ProofOf(const Param& param, const State& before, const State& after, const ProofRun& run) {
  Proof proof;
  proof.param = param.name;
  proof.before = Describe(before, *run.mesh);
  proof.after = Describe(after, *run.mesh);
  const Fault fault = after.lost ? after.lost : after.off;
  if (fault) {
    proof.reason = fault.reason;
    proof.operation = run.tape->OperationName(fault.operation);
    const int met = MetAt(*run.tape, fault);
    if (const std::string unsummed = UnsummedAt(*run.tape, met); !unsummed.empty())
      proof.operation = unsummed;
    // Two uses of the parameter itself, or of its rows, that no action can both serve: known to be
    // wrong. Elsewhere nothing is claimed.
    const bool own = fault.operation >= 0 && run.tape->nodes()[fault.operation].param == &param;
    const bool mixed = fault.reason == kMixedUse && (own || MadeOfRows(*run.tape, met, param));
    proof.outcome = mixed ? Outcome::kWrong : Outcome::kNoStatement;
    if (mixed) {
      proof.mechanism = Mechanism::kMixedUse;
      proof.coefficient = "none: per rank";
      proof.axis = Axis::kTp;
    }
    return proof;
  }
  const Judgement judgement =
      Judge(param.shards.Target(*run.mesh), before, after, run.sound_scale, *run.mesh);
  SetJudgement(judgement, proof);
  return proof;
}

// How often the preset multiplies this parameter's gradient by the runtime number 1/num_tokens.
int TimesPerToken(const FinalizePreset& preset, const FinalizeConfig& config, const Param& param) {
  int times = 0;
  for (const FinalizeStep& step : preset.steps) {
    const FinalizeRule* rule = Claiming(step, param, config);
    times += rule && rule->times_inverse_tokens;
  }
  return times;
}

// The reference has the number once in per-token mode; missing or repeated it is a factor that no
// sum explains.
void JudgeTokens(const Scenario& scenario, int surplus, Proof& proof) {
  if (surplus == 0 || proof.outcome == Outcome::kNoStatement) return;
  if (proof.outcome == Outcome::kWrong) {
    proof.outcome = Outcome::kNoStatement;
    proof.reason = "1/num_tokens is not applied once, besides another fault";
    return;
  }
  double num_tokens = 0;
  if (const auto data = MakeData(scenario, 1); data.ok()) {
    for (const Microbatch& microbatch : *data) num_tokens += microbatch.num_tokens;
  }
  proof.outcome = Outcome::kWrong;
  proof.mechanism = Mechanism::kWrongScale;
  proof.coefficient = surplus < 0 ? "num_tokens" : "1/num_tokens";
  proof.factor = surplus < 0 ? num_tokens : 1.0 / num_tokens;
}

Proof NothingProved(const std::string& param, const std::string& reason) {
  Proof proof;
  proof.param = param;
  proof.outcome = Outcome::kNoStatement;
  proof.reason = reason;
  return proof;
}

// What the finalizer makes of one parameter's gradient, and the proof that follows.
class ParamProver {
 public:
  ParamProver(const Scenario& scenario, const FinalizePreset& preset, const FinalizeConfig& config,
              const Effects& effects, ProofRun& run)
      : scenario_(scenario), preset_(preset), config_(config), effects_(effects), run_(run) {
    for (const FinalizeStep& step : preset.steps)
      calls_.push_back(CallsOf(step, config, *run.mesh, run.model->params().all()));
  }

  // `classes`: of ranks, by what their marks make the finalizer do; empty: all ranks do the same.
  // Each is proved as if all ranks did what it does; the first that is not right is the proof.
  void Prove(Param& param, State state, const std::vector<RankClass>& classes) const {
    const bool by_themselves =
        std::all_of(classes.begin(), classes.end(), [&](const RankClass& one) {
          return classes.size() == 1 || IsByItself(one, classes, *run_.mesh);
        });
    if (!by_themselves && !state.lost)
      state.lost = {"the ranks do not agree on this parameter's mark", -1};
    if (classes.empty() || !by_themselves) {
      ProveAlike(param, state);
      return;
    }
    const Marks marks = param.marks;
    for (const RankClass& one : classes) {
      param.marks = one.marks;
      ProveAlike(param, state);
      if (run_.proofs[param.name].outcome == Outcome::kRight) continue;
      if (classes.size() > 1) run_.proofs[param.name].ranks = RanksInWords(one.ranks);
      break;
    }
    param.marks = marks;
  }

 private:
  void ProveAlike(Param& param, State state) const {
    run_.before[param.name] = state;
    run_.finalized[param.name].clear();
    for (size_t i = 0; i < preset_.steps.size(); ++i) {
      state = ApplyFinalizeStep(preset_.steps[i], config_, *run_.mesh, param, state);
      for (const FinalizeCall& call : calls_[i]) ApplyCall(call, param, state);
      run_.finalized[param.name].emplace_back(preset_.steps[i].name, state);
    }
    run_.after[param.name] = state;
    run_.proofs[param.name] = ProofOf(param, run_.before[param.name], state, run_);
    const int once = config_.per_token_loss ? 1 : 0;
    JudgeTokens(scenario_, TimesPerToken(preset_, config_, param) - once, run_.proofs[param.name]);
  }

  void ApplyCall(const FinalizeCall& call, const Param& param, State& state) const {
    if (std::find(call.params.begin(), call.params.end(), &param) == call.params.end()) return;
    for (const auto& effect : effects_.all())
      effect->OnFinalizeCall(call, *run_.mesh, param, state);
  }

  const Scenario& scenario_;
  const FinalizePreset& preset_;
  const FinalizeConfig& config_;
  const Effects& effects_;
  ProofRun& run_;
  std::vector<std::vector<FinalizeCall>> calls_;  // by step
};

}  // namespace

ProofRun Prove(const Scenario& scenario, std::span<const Edit> edits) {
  ProofRun run;
  run.mesh = std::make_shared<const Mesh>(*Mesh::Create(scenario.mesh));
  Effects effects(edits, kProver);
  ModelConfig config = EffectiveModel(scenario);
  for (const auto& effect : effects.all()) effect->OnConfig(config);
  run.model = std::make_shared<Model>(config);
  for (const auto& effect : effects.all()) effect->OnBuilt(run.model->params());
  run.tape = std::make_shared<AbstractTape>(*run.mesh);
  effects.Attach(*run.tape);
  run.sound_scale = LossScale(scenario, *run.mesh);

  BatchInputs inputs;
  inputs.sequence = scenario.data.sequence;
  inputs.batch = scenario.data.micro_batch * scenario.mesh.dp;
  inputs.sequence_starts = StartsOf(scenario.data);
  // The mask is a constant of whatever values, laid out like what it multiplies.
  if (config.common.lora.dropout > 0)
    inputs.keeps = [](const std::string&, int64_t) { return true; };
  const Value loss = run.model->Forward(*run.tape, inputs, run.sound_scale);
  run.tape->Backward(loss);
  run.loss = loss.id;
  for (const auto& effect : effects.all()) effect->OnBackwardDone(run.model->params());
  for (const auto& effect : effects.all()) {
    if (run.refused.empty()) run.refused = effect->Unprovable();
  }
  if (!run.tape->status().ok()) run.refused = std::string(run.tape->status().message());
  run.conditions = Conditions(scenario, run.model->params());

  FinalizePreset preset = *Finalizers().Find(scenario.finalizer);
  if (scenario.optimizer.clip_grad > 0)
    run.norm_miscounts =
        MiscountedByMarks(run.model->params(), preset, *run.mesh, scenario.optimizer.norm_type);
  for (const auto& effect : effects.all()) effect->OnPreset(preset);
  const FinalizeConfig finalize = EffectiveFinalizeConfig(scenario);
  const ParamProver prover(scenario, preset, finalize, effects, run);
  const auto classes = RankClasses(scenario, edits, preset);
  for (Param& param : run.model->params().all()) {
    if (!param.requires_grad) continue;
    if (!run.refused.empty()) {
      run.proofs[param.name] = NothingProved(param.name, run.refused);
      continue;
    }
    bool used = false;
    State state = JoinUses(*run.tape, param, &used);
    if (!used) {
      run.proofs[param.name] = NothingProved(param.name, "no gradient reaches it");
      continue;
    }
    for (const auto& effect : effects.all()) effect->OnState(param, state);
    const auto own = classes.find(param.name);
    prover.Prove(param, state, own == classes.end() ? std::vector<RankClass>() : own->second);
  }
  return run;
}

}  // namespace sumonce

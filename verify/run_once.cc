#include "verify/run_once.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/digest.h"
#include "base/status.h"
#include "comm/errors.h"
#include "spmd/whole.h"
#include "verify/agreement.h"
#include "verify/diagnose.h"
#include "verify/drift.h"
#include "verify/inherited.h"
#include "verify/localize.h"
#include "verify/telling_data.h"

namespace sumonce {
namespace {

class Runner {
 public:
  Runner(const Scenario& scenario, std::span<const Edit> edits, const SimOptions& options)
      : scenario_(scenario),
        edits_(edits),
        options_(options),
        mesh_(*Mesh::Create(scenario.mesh)),
        model_(EffectiveModel(scenario)) {}

  RunOnce Run() {
    run_.proof = Prove(scenario_, edits_);
    absl::StatusOr<Weights> start = StartWeights(scenario_, model_.params());
    if (!start.ok()) {
      run_.run_status = start.status();
      return std::move(run_);
    }
    run_.start = *std::move(start);
    SimResult result = Simulate(scenario_, edits_, run_.start, options_);
    run_.digest = result.digest;
    run_.calls = std::move(result.calls);
    run_.run_status = result.status;
    if (!result.status.ok()) {
      run_.run_verdict = RunVerdict(result.status);
      return std::move(run_);
    }
    run_.record = std::move(result.record);
    run_.gradient_digest = GradientDigest();
    clean_ = Prove(scenario_, {});
    run_.tolerance = DeriveTolerance(*clean_.tape, scenario_.data.microbatches, mesh_.world_size(),
                                     scenario_.data.fill == Fill::kExact);
    rounding_ = RoundingOf(scenario_.precision, scenario_.data.microbatches, mesh_.world_size());
    JudgeSteps();
    NameUpstream();
    NameMixedUse();
    ProofDecides();
    AddLaterDrift();
    GatherInherited();
    return std::move(run_);
  }

 private:
  static Verdict RunVerdict(const absl::Status& status) {
    Verdict verdict;
    verdict.outcome = Outcome::kWrong;
    verdict.evidence.push_back(std::string(status.message()));
    switch (KindOf(status)) {
      case RunFailure::kCollectiveMismatch:
        verdict.mechanism = Mechanism::kCollectiveMismatch;
        break;
      case RunFailure::kDeadlock:
        verdict.mechanism = Mechanism::kDeadlock;
        break;
      case RunFailure::kRankLost:
        verdict.mechanism = Mechanism::kRankLost;
        break;
      case RunFailure::kNone:
        // An operation refused its operands: nothing can be said below it.
        verdict.outcome = Outcome::kNoStatement;
        verdict.operation =
            std::string(status.message()).substr(0, std::string(status.message()).find(':'));
        break;
    }
    return verdict;
  }

  std::string GradientDigest() const {
    Digest digest;
    for (const RankRecords& rank : run_.record.ranks) {
      for (const StepRecord& step : rank) {
        if (step.grad_norm) digest.Add(std::span<const double>(&step.grad_norm->norm, 1));
        for (const auto& [name, param] : step.params) digest.Add(param.finalized().values());
      }
    }
    return digest.Hex();
  }

  // The steps in order, as long as replicas are equal at their start.
  void JudgeSteps() {
    const size_t steps = run_.record.ranks[0].size();
    for (size_t i = 0; i < steps; ++i) {
      const int step = run_.record.ranks[0][i].step;
      const Assembled assembled = AssembleWeights(scenario_, run_.record, i);
      if (!assembled.drifted.empty()) {
        Drifted(i, assembled.drifted);
        FollowDrift(i + 1);
        return;
      }
      const SimResult reference =
          SimulateReference(scenario_, assembled.weights, step, 1, SimOptions());
      SUMONCE_CHECK(reference.status.ok()) << reference.status;
      const Weights moved = Perturbed(assembled.weights, run_.tolerance.gamma, scenario_.seed);
      const SimResult neighbour = SimulateReference(scenario_, moved, step, 1, SimOptions());
      SUMONCE_CHECK(neighbour.status.ok()) << neighbour.status;
      JudgeStep(i, reference.record.ranks[0][0], neighbour.record.ranks[0][0]);
    }
    const std::vector<std::string> parted = PartedAtTheEnd();
    if (!parted.empty()) Drifted(steps, parted);
  }

  // `neighbour`: the reference from weights moved by gamma, which shows how much this model
  // amplifies.
  void JudgeStep(size_t index, const StepRecord& reference, const StepRecord& neighbour) {
    ComparedStep compared{.step = run_.record.ranks[0][index].step, .reference = &reference};
    for (const RankRecords& rank : run_.record.ranks) {
      compared.ranks.push_back(&rank[index]);
      if (index > 0 && rank[index - 1].step + 1 == rank[index].step)
        compared.previous.push_back(&rank[index - 1]);
    }
    DiagnoseInputs inputs{.mesh = &mesh_,
                          .sound_scale = run_.proof.sound_scale,
                          .tolerance = run_.tolerance,
                          .main_grad_dtype = scenario_.precision.main_grad_dtype()};
    for (const Param& param : model_.params().all()) {
      if (!param.requires_grad) continue;
      inputs.tolerance.amplification =
          RelativeDistance(reference.params.at(param.name).contribution,
                           neighbour.params.at(param.name).contribution);
      amplification_ = std::max(amplification_, inputs.tolerance.amplification);
      if (rounding_ > 0) inputs.tolerance.rounding = RoundingOfTerms(compared, reference, param);
      run_.tolerance.rounding = std::max(run_.tolerance.rounding, inputs.tolerance.rounding);
      Verdict verdict = DiagnoseParam(inputs, compared, param);
      const auto earlier = run_.numbers.find(param.name);
      // The first wrong step is the verdict; evidence of a later step replaces the absence of it.
      const bool replaces =
          earlier == run_.numbers.end() || earlier->second.outcome == Outcome::kNoEvidence ||
          (earlier->second.outcome == Outcome::kRight && verdict.outcome == Outcome::kWrong);
      if (replaces) run_.numbers[param.name] = std::move(verdict);
    }
    if (index == 0 && scenario_.optimizer.clip_grad > 0) JudgeNorm(compared);
  }

  // What storing may change a parameter's gradient by, relative to its largest entry: terms that
  // cancel are rounded before they do.
  double RoundingOfTerms(const ComparedStep& compared, const StepRecord& reference,
                         const Param& param) const {
    const double largest = MaxAbs(reference.params.at(param.name).contribution);
    if (largest == 0) return rounding_;
    const Group tp = mesh_.GroupOf(Axis::kTp);
    const auto before = clean_.before.find(param.name);
    const bool sums =
        before == clean_.before.end() || before->second.lost ||
        (!tp.atomic.empty() && before->second[tp.atomic[0]].layout == Layout::kPartial);
    const int64_t count = compared.ranks[0]->params.at(param.name).contribution.count();
    double most = largest;
    for (int64_t i = 0; i < count; ++i) {
      std::map<int, double> of_tp;  // by tp coordinate: over dp and microbatches
      for (size_t rank = 0; rank < compared.ranks.size(); ++rank) {
        for (const Tensor& term : compared.ranks[rank]->params.at(param.name).terms)
          of_tp[mesh_.coordinate(static_cast<int>(rank), Axis::kTp)] += std::fabs(term.data()[i]);
      }
      double together = 0;
      for (const auto& [coordinate, sum] : of_tp)
        together = sums ? together + sum : std::max(together, sum);
      most = std::max(most, together);
    }
    return rounding_ * most / largest;
  }

  // Marks and layouts do not change from step to step: the first one says it all.
  void JudgeNorm(const ComparedStep& compared) {
    const OptimizerConfig& optimizer = scenario_.optimizer;
    const NormCheck check =
        CheckGradNorm(mesh_, *Finalizers().Find(scenario_.finalizer), optimizer, model_.params(),
                      compared.ranks, *compared.reference, run_.tolerance);
    std::vector<std::string> right;
    for (const auto& [name, verdict] : run_.numbers) {
      if (verdict.outcome == Outcome::kRight) right.push_back(name);
    }
    run_.norm_table = NormTable(check, mesh_, optimizer, model_.params(), compared.ranks,
                                *compared.reference, right);
    if (mesh_.size(mesh_.GroupOf(Axis::kTp)) == 1) return;
    run_.norm_verdict = NormVerdict(check, run_.proof.norm_miscounts);
    clip_apart_ = !check.by_rank.empty();
    for (std::string& sentence : NormDisagreements(check, run_.proof.norm_miscounts))
      run_.disagreements.push_back(std::move(sentence));
  }

  // Behind the first step with unequal replicas nothing is judged, but what parts there is noted: a
  // gradient that was zero until then parts its copies later.
  void FollowDrift(size_t first) {
    for (size_t i = first; i < run_.record.ranks[0].size(); ++i) {
      for (const std::string& param : AssembleWeights(scenario_, run_.record, i).drifted)
        parted_later_.emplace(param, run_.record.ranks[0][i].step);
    }
    for (const std::string& param : PartedAtTheEnd())
      parted_later_.emplace(param, scenario_.steps + 1);
  }

  // Copies of a right parameter that part later follow others' drift; those of a wrong one are its
  // own consequence.
  void AddLaterDrift() {
    for (const auto& [param, step] : parted_later_) {
      const auto found = run_.verdicts.find(param);
      if (found == run_.verdicts.end() || found->second.outcome != Outcome::kWrong) continue;
      std::vector<Mechanism>& consequences = found->second.consequences;
      if (std::find(consequences.begin(), consequences.end(), Mechanism::kReplicaDrift) !=
          consequences.end())
        continue;
      found->second.evidence.push_back(
          absl::StrCat("its copies part before step ", step, ": REPLICA_DRIFT"));
      consequences.push_back(Mechanism::kReplicaDrift);
    }
  }

  // Replicas that differ after the last step's update.
  std::vector<std::string> PartedAtTheEnd() {
    std::vector<std::string> parted;
    for (const Param& param : model_.params().all()) {
      std::vector<Tensor> ranks;
      for (const RankRecords& rank : run_.record.ranks)
        ranks.push_back(rank.back().params.at(param.name).weight_after);
      if (Join(param.shards.Target(mesh_), mesh_, ranks).spread != 0) parted.push_back(param.name);
    }
    return parted;
  }

  // `index`: of the first recorded step that copies differ before; as many as were recorded: they
  // differ behind the last.
  void Drifted(size_t index, const std::vector<std::string>& params) {
    for (const std::string& name : params) {
      const auto found = run_.numbers.find(name);
      if (found == run_.numbers.end()) continue;
      Verdict& verdict = found->second;
      if (clip_apart_ && run_.norm_verdict && verdict.outcome != Outcome::kWrong) {
        if (run_.norm_verdict->consequences.empty())
          run_.norm_verdict->consequences.push_back(Mechanism::kReplicaDrift);
        continue;
      }
      const Parting parting = PartingOf(index, *model_.params().Find(name));
      verdict.evidence.push_back(absl::StrCat(parting.text, ": REPLICA_DRIFT"));
      verdict.consequences.push_back(Mechanism::kReplicaDrift);
      if (verdict.outcome != Outcome::kRight) continue;
      verdict.outcome = Outcome::kWrong;
      verdict.mechanism = Mechanism::kReplicaDrift;
      verdict.step = parting.step;
      verdict.operation = parting.operation;
    }
  }

  // Steps that are not recorded leave out where: the next recorded one is named.
  Parting PartingOf(size_t index, const Param& param) const {
    std::vector<const StepRecord*> ranks;
    for (const RankRecords& rank : run_.record.ranks) ranks.push_back(&rank[index - 1]);
    if (index == run_.record.ranks[0].size() ||
        ranks[0]->step + 1 == run_.record.ranks[0][index].step)
      return FindParting(run_.proof, param, ranks);
    const int next = run_.record.ranks[0][index].step;
    return {
        .step = next,
        .operation = {},
        .text = absl::StrCat("its copies part between step ", ranks[0]->step, " and step ", next)};
  }

  // No operation goes wrong against the program as it stands: then the program does, where the
  // proof loses the state.
  void NameByProof(const std::vector<Verdict*>& verdicts) const {
    std::map<std::string, std::vector<Verdict*>> lost;  // by operation
    for (Verdict* verdict : verdicts) {
      const Proof& proof = run_.proof.proofs.at(verdict->param);
      if (verdict->operation.empty() && !proof.operation.empty())
        lost[proof.operation].push_back(verdict);
    }
    for (const auto& [operation, together] : lost) {
      for (Verdict* verdict : together) {
        verdict->operation = operation;
        verdict->evidence.push_back(absl::StrCat("the program itself loses terms at ", operation,
                                                 ": ",
                                                 run_.proof.proofs.at(verdict->param).reason));
        for (const Verdict* other : together) {
          if (other != verdict) verdict->affected.push_back(other->param);
        }
      }
    }
  }

  // Of a use that no action serves: the communication that could.
  void NameMixedUse() {
    for (auto& [name, verdict] : run_.numbers) {
      const Proof& proof = run_.proof.proofs.at(name);
      if (verdict.mechanism == Mechanism::kMixedUse && proof.mechanism == Mechanism::kMixedUse)
        verdict.operation = proof.operation;
    }
  }

  // Gradients that arrive wrong: the step in which they first do is run once more for each of its
  // microbatches, with every operation kept, until one names the first operation that went wrong.
  void NameUpstream() {
    std::map<int, std::vector<Verdict*>> upstream;  // by step
    for (auto& [name, verdict] : run_.numbers) {
      // Where a call of the finalizer is named already there is nothing to look for.
      if (verdict.mechanism == Mechanism::kUpstream && verdict.operation.empty())
        upstream[verdict.step].push_back(&verdict);
    }
    for (const auto& [step, verdicts] : upstream) {
      for (int microbatch = 0; microbatch < scenario_.data.microbatches; ++microbatch) {
        const std::optional<Culprit> culprit = FindCulprit(step, microbatch);
        if (!culprit) continue;
        for (Verdict* verdict : verdicts) NameCulprit(*culprit, microbatch, verdicts, *verdict);
        break;
      }
      NameByProof(verdicts);
      for (Verdict* verdict : verdicts) {
        if (!verdict->operation.empty() || !options_.remote) continue;
        verdict->evidence.push_back(absl::StrCat("ranks in one process (", SimOptions().transport,
                                                 ") show no operation that goes wrong: the fault "
                                                 "may be ",
                                                 options_.transport, "'s"));
      }
    }
  }

  std::optional<Culprit> FindCulprit(int step, int microbatch) const {
    SimOptions keeping = options_;
    keeping.now_us = nullptr;
    if (keeping.remote) {  // ordered sums are the same to the bit, and here all tapes are at hand
      keeping.transport = SimOptions().transport;
      keeping.remote = nullptr;
    }
    keeping.keep_tapes = true;
    keeping.keep_step = step;
    keeping.keep_microbatch = microbatch;
    const SimResult ranks = Simulate(scenario_, edits_, run_.start, keeping);
    size_t recorded = 0;
    while (run_.record.ranks[0][recorded].step != step) ++recorded;
    const Weights weights = AssembleWeights(scenario_, run_.record, recorded).weights;
    keeping.keep_step = 1;  // the reference's only one
    const SimResult reference = SimulateReference(scenario_, weights, step, 1, keeping);
    Tolerance tolerance = run_.tolerance;
    tolerance.amplification = amplification_;
    tolerance.rounding = 0;  // tapes hold float64
    return Localize(ranks.tapes, reference.tapes[0], clean_, tolerance);
  }

  void NameCulprit(const Culprit& culprit, int microbatch, const std::vector<Verdict*>& together,
                   Verdict& verdict) const {
    verdict.operation = culprit.operation;
    const std::string where = scenario_.data.microbatches == 1
                                  ? std::string()
                                  : absl::StrCat(" in microbatch ", microbatch);
    verdict.evidence.push_back(
        absl::StrCat("first wrong", where, " at ", culprit.operation, ": ", culprit.evidence));
    for (const Verdict* other : together) {
      if (other != &verdict) verdict.affected.push_back(other->param);
    }
  }

  // Right in numbers where the proof makes no statement: a refusal says that something is wrong,
  // and right numbers only contradict it if they could have shown it. These could not: on data that
  // hide nothing they are not right.
  std::map<std::string, Verdict> Untold() const {
    std::set<std::string> silent;
    for (const auto& [name, verdict] : run_.numbers) {
      if (verdict.outcome == Outcome::kRight && !Agrees(verdict, run_.proof.proofs.at(name)))
        silent.insert(name);
    }
    if (silent.empty()) return {};
    std::map<std::string, Verdict> telling =
        VerdictsOnTellingData(scenario_, edits_, run_.start, silent, run_.tolerance);
    std::erase_if(telling,
                  [](const auto& entry) { return entry.second.outcome != Outcome::kWrong; });
    return telling;
  }

  static void CannotShow(const Verdict& told, Verdict& verdict) {
    verdict.outcome = Outcome::kNoEvidence;
    verdict.evidence.push_back(absl::StrCat(
        "right on this data, which cannot show the fault: what it acts on is zero here. With loss "
        "on every token and no start weight that is zero the numbers say ",
        ToAbsl(Name(told.mechanism)), "; the proof decides"));
  }

  // Beside what arrives wrong at an operation, parameters that only inherit it.
  void GatherInherited() {
    std::map<std::string, std::vector<std::string>> groups;  // by operation
    for (const auto& [name, verdict] : run_.verdicts) {
      if (verdict.mechanism == Mechanism::kUpstream && !verdict.operation.empty())
        groups[verdict.operation].push_back(name);
    }
    for (auto& [operation, params] : groups) {
      for (auto& [name, verdict] : run_.verdicts) {
        if (verdict.outcome != Outcome::kWrong || verdict.mechanism == Mechanism::kUpstream ||
            !InheritsFault(scenario_, edits_, run_.proof, clean_, name, operation))
          continue;
        verdict.evidence.push_back(InheritedText(run_.proof, clean_, verdict));
        verdict.mechanism = Mechanism::kUpstream;
        verdict.operation = operation;
        verdict.axis.reset();
        verdict.factor.reset();
        verdict.coefficient.clear();
        params.push_back(name);
      }
      for (const std::string& param : params) {
        std::vector<std::string>& affected = run_.verdicts.at(param).affected;
        affected.clear();
        for (const std::string& other : params) {
          if (other != param) affected.push_back(other);
        }
      }
    }
  }

  // Where the numbers show nothing the proof speaks; where both speak they must agree.
  void ProofDecides() {
    run_.verdicts = run_.numbers;
    const std::map<std::string, Verdict> telling = Untold();
    for (auto& [name, verdict] : run_.verdicts) {
      const Proof& proof = run_.proof.proofs.at(name);
      if (const auto told = telling.find(name); told != telling.end()) {
        CannotShow(told->second, verdict);
        TakeOver(proof, verdict);
        continue;
      }
      if (!Agrees(verdict, proof)) {
        run_.disagreements.push_back(absl::StrCat(
            name, ": numbers say ", ToAbsl(Name(verdict.outcome)), " ",
            ToAbsl(Name(verdict.mechanism)), " ", verdict.coefficient, ", the proof says ",
            ToAbsl(Name(proof.outcome)), " ", ToAbsl(Name(proof.mechanism)), " ", proof.coefficient,
            " (", proof.reason, ")"));
      }
      NameFactorByProof(proof, verdict);
      const bool cancels = verdict.outcome == Outcome::kRight && proof.outcome == Outcome::kWrong &&
                           Agrees(verdict, proof);
      if (verdict.outcome != Outcome::kNoEvidence && !cancels) continue;
      verdict.evidence.push_back(
          cancels ? "the factor is 1 on this mesh: the numbers cannot show it, the proof decides"
                  : "the numbers show nothing; the proof decides");
      run_.undecided += !cancels;
      TakeOver(proof, verdict);
    }
  }

  // One number may be several factors ("4" where tp is 4, "tp" where dp is as large): the proof
  // knows which.
  static void NameFactorByProof(const Proof& proof, Verdict& verdict) {
    if (verdict.outcome != Outcome::kWrong || proof.outcome != Outcome::kWrong || !proof.factor ||
        verdict.factor != proof.factor)
      return;
    if (verdict.coefficient == proof.coefficient && verdict.axis == proof.axis &&
        verdict.mechanism == proof.mechanism)
      return;
    const std::string holds = absl::StrCat("every rank holds ", verdict.coefficient, " times the ");
    for (std::string& line : verdict.evidence) {
      if (line.starts_with(std::string_view(holds)))
        line = absl::StrCat("every rank holds ", proof.coefficient, " times the reference");
    }
    verdict.evidence.push_back(absl::StrCat("on this mesh the numbers are also ",
                                            ToAbsl(Name(verdict.mechanism)), " by ",
                                            verdict.coefficient, "; the proof tells which"));
    const std::string operation = verdict.operation;
    TakeOver(proof, verdict);
    if (!operation.empty()) verdict.operation = operation;
  }

  const Scenario& scenario_;
  std::span<const Edit> edits_;
  SimOptions options_;
  Mesh mesh_;
  Model model_;
  ProofRun clean_;
  double rounding_ = 0;  // of mixed precision, relative to the sum of the terms' magnitudes
  std::map<std::string, int> parted_later_;  // the step before which copies part, behind the first
  bool clip_apart_ = false;                  // ranks of a tp group have norms of their own
  double amplification_ = 0;                 // the largest of any parameter so far
  RunOnce run_;
};

}  // namespace

RunOnce RunScenarioOnce(const Scenario& scenario, std::span<const Edit> edits,
                        const SimOptions& options) {
  return Runner(scenario, edits, options).Run();
}

}  // namespace sumonce

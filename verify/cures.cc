#include "verify/cures.h"

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text.h"
#include "sim/defects/effect.h"
#include "sim/simulator.h"
#include "verify/prove.h"
#include "verify/rank_classes.h"

namespace sumonce {
namespace {

using Candidate = std::vector<Edit>;

Edit SetMark(const std::string& param, Mark mark, bool set, When when = When::kAtBuild) {
  return {.kind = MarkEdit{.param = param, .mark = mark, .set = set, .when = when}};
}

Edit AddRule(const std::string& param, Axis axis) {
  return {.kind = AddRuleEdit{.param = param, .map = Map::kSum, .group = std::string(Name(axis))}};
}

Edit DropRule(const std::string& param, const std::string& rule) {
  return {.kind = RuleEdit{.how = RuleEdit::How::kDrop, .rule = rule, .param = param}};
}

// The rules that claimed the parameter, last first.
std::vector<std::string> RulesOf(const Verdict& verdict) {
  std::vector<std::string> rules;
  size_t from = 0;
  while (from < verdict.rule.size()) {
    size_t to = verdict.rule.find(", ", from);
    if (to == std::string::npos) to = verdict.rule.size();
    rules.insert(rules.begin(), verdict.rule.substr(from, to - from));
    from = to + 2;
  }
  return rules;
}

// "decoder.layers.0.self_attention" of "decoder.layers.0.self_attention.in_proj.layer_norm_weight".
std::string MixerOf(const std::string& param) {
  const size_t at = param.find(".self_attention");
  return at == std::string::npos ? "" : param.substr(0, at) + ".self_attention";
}

void MissingSum(const Verdict& verdict, std::vector<Candidate>& candidates) {
  const Axis axis = verdict.axis.value_or(Axis::kTp);
  if (axis == Axis::kTp)
    candidates.push_back({SetMark(verdict.param, Mark::kSequenceParallel, true)});
  if (axis == Axis::kTp) {
    candidates.push_back(
        {SetMark(verdict.param, Mark::kSequenceParallel, true, When::kAfterBackward)});
  }
}

void AddedSum(const Verdict& verdict, std::vector<Candidate>& candidates) {
  const Axis axis = verdict.axis.value_or(Axis::kTp);
  candidates.push_back({AddRule(verdict.param, axis)});
  if (axis == Axis::kTp) candidates.push_back({AddRule(verdict.param, Axis::kKvCopy)});
}

void DoubleSum(const Verdict& verdict, std::vector<Candidate>& candidates) {
  if (verdict.axis == Axis::kTp) {
    const std::string mixer = MixerOf(verdict.param);
    if (!mixer.empty()) {
      candidates.push_back(
          {{.kind = RegionMarksEdit{.module = mixer, .marks = RegionMarks::kLeaveOff}}});
    }
    candidates.push_back({SetMark(verdict.param, Mark::kSequenceParallel, false)});
    candidates.push_back(
        {SetMark(verdict.param, Mark::kSequenceParallel, false, When::kAfterBackward)});
  }
  for (const std::string& rule : RulesOf(verdict))
    candidates.push_back({DropRule(verdict.param, rule)});
}

void Averaged(const Verdict& verdict, std::vector<Candidate>& candidates) {
  const Edit unaveraged = SetMark(verdict.param, Mark::kAverageGradientsAcrossTpDomain, false);
  candidates.push_back({unaveraged});
  candidates.push_back({unaveraged, SetMark(verdict.param, Mark::kSequenceParallel, true)});
  const Edit after =
      SetMark(verdict.param, Mark::kAverageGradientsAcrossTpDomain, false, When::kAfterBackward);
  candidates.push_back({after});
  for (const std::string& rule : RulesOf(verdict)) {
    candidates.push_back(
        {DropRule(verdict.param, rule), AddRule(verdict.param, verdict.axis.value_or(Axis::kTp))});
  }
}

void MixedShards(const Verdict& verdict, std::vector<Candidate>& candidates) {
  const Edit unmarked = SetMark(verdict.param, Mark::kSequenceParallel, false);
  const Edit unaveraged = SetMark(verdict.param, Mark::kAverageGradientsAcrossTpDomain, false);
  candidates.push_back({unmarked});
  candidates.push_back({unaveraged});
  candidates.push_back({unmarked, unaveraged});
  for (Mark mark : {Mark::kSequenceParallel, Mark::kAverageGradientsAcrossTpDomain})
    candidates.push_back({SetMark(verdict.param, mark, false, When::kAfterBackward)});
  for (const std::string& rule : RulesOf(verdict))
    candidates.push_back({DropRule(verdict.param, rule)});
}

// The rule that goes elsewhere than the framework's is the culprit; else one that could go there.
void WrongGroup(const Scenario& scenario, std::span<const Edit> edits, const Verdict& verdict,
                std::vector<Candidate>& candidates) {
  const FinalizePreset own = *Finalizers().Find(scenario.finalizer);
  const FinalizePreset edited = EffectivePreset(scenario, edits);
  Model model(EffectiveModel(scenario));
  const Param& param = *model.params().Find(verdict.param);
  for (size_t i = 0; i < own.steps.size() && i < edited.steps.size(); ++i) {
    const FinalizeRule* sound = Claiming(own.steps[i], param, EffectiveFinalizeConfig(scenario));
    const FinalizeRule* now = Claiming(edited.steps[i], param, EffectiveFinalizeConfig(scenario));
    if (!sound || !now || sound->name != now->name || sound->group == now->group) continue;
    candidates.push_back({{.kind = RuleEdit{.how = RuleEdit::How::kOtherGroup,
                                            .rule = sound->name,
                                            .param = verdict.param,
                                            .group = sound->group}}});
  }
  for (const std::string& rule : RulesOf(verdict)) {
    candidates.push_back(
        {DropRule(verdict.param, rule), AddRule(verdict.param, verdict.axis.value_or(Axis::kTp))});
  }
}

// "decoder.layers.*.self_attention/AllGather#0" of layer 1's.
std::string OfAnyLayer(const std::string& operation) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = operation.find(kLayers);
  if (at == std::string::npos) return operation;
  const size_t number = at + kLayers.size();
  return operation.substr(0, number) + "*" + operation.substr(operation.find('.', number));
}

// Another map for the communication that the localisation named, or for it and its like in every
// layer.
void Upstream(const Verdict& verdict, std::vector<Candidate>& candidates) {
  if (verdict.operation.empty()) return;
  for (const std::string& operation : {verdict.operation, OfAnyLayer(verdict.operation)}) {
    for (Direction direction : {Direction::kBackward, Direction::kForward}) {
      for (Map map :
           {Map::kReduceScatter, Map::kAllGather, Map::kSum, Map::kSplit, Map::kIdentity}) {
        candidates.push_back(
            {{.kind = CollectiveEdit{.operation = operation, .direction = direction, .map = map}}});
      }
    }
  }
}

// Two faults at once, one an axis: a mark or a rule for tp together with a rule for dp.
void Both(const Verdict& verdict, std::vector<Candidate>& candidates) {
  const Edit dp = AddRule(verdict.param, Axis::kDp);
  candidates.push_back({SetMark(verdict.param, Mark::kSequenceParallel, true), dp});
  candidates.push_back(
      {SetMark(verdict.param, Mark::kSequenceParallel, true, When::kAfterBackward), dp});
  candidates.push_back({AddRule(verdict.param, Axis::kTp), dp});
}

// Reduced with the experts' gradients: the dense parameters' group, with or without the sum over
// tp.
void ExpertGroup(const Verdict& verdict, std::vector<Candidate>& candidates) {
  const Edit dense = SetMark(verdict.param, Mark::kAllreduce, true);
  candidates.push_back({dense});
  candidates.push_back({dense, SetMark(verdict.param, Mark::kSequenceParallel, true)});
}

std::vector<Candidate> CandidatesFor(const Scenario& scenario, std::span<const Edit> edits,
                                     const Verdict& verdict) {
  std::vector<Candidate> candidates;
  if (absl::StrContains(verdict.rule, "expert_data_parallel")) ExpertGroup(verdict, candidates);
  switch (verdict.mechanism) {
    case Mechanism::kMissingSum:
      MissingSum(verdict, candidates);
      AddedSum(verdict, candidates);
      Both(verdict, candidates);
      break;
    case Mechanism::kUnsummedShare:
      MissingSum(verdict, candidates);
      AddedSum(verdict, candidates);
      Both(verdict, candidates);
      Averaged(verdict, candidates);
      break;
    case Mechanism::kDoubleSum:
      DoubleSum(verdict, candidates);
      break;
    case Mechanism::kAveraged:
      Averaged(verdict, candidates);
      break;
    case Mechanism::kMixedShards:
      MixedShards(verdict, candidates);
      break;
    case Mechanism::kWrongGroup:
      WrongGroup(scenario, edits, verdict, candidates);
      break;
    case Mechanism::kUpstream:
    case Mechanism::kMixedUse:
      Upstream(verdict, candidates);
      break;
    default:
      break;
  }
  return candidates;
}

CureTrial TrialOf(const Candidate& candidate) {
  CureTrial trial{.edits = candidate, .text = {}, .result = {}};
  std::vector<std::string> texts;
  for (const Edit& edit : candidate) texts.push_back(Describe(edit));
  trial.text = absl::StrJoin(texts, ", and ");
  return trial;
}

std::vector<Edit> With(std::span<const Edit> edits, const Candidate& candidate) {
  std::vector<Edit> all(edits.begin(), edits.end());
  all.insert(all.end(), candidate.begin(), candidate.end());
  return all;
}

// The verdict's parameters that a proof does not call right.
std::vector<std::string> NotRight(const ProofRun& run, const Verdict& verdict) {
  std::vector<std::string> params = verdict.affected;
  params.push_back(verdict.param);
  std::vector<std::string> left;
  for (const std::string& param : params) {
    const auto proof = run.proofs.find(param);
    if (proof == run.proofs.end() || proof->second.outcome != Outcome::kRight)
      left.push_back(param);
  }
  return left;
}

bool Accepts(const Scenario& scenario, std::span<const Edit> edits, const Candidate& candidate,
             const Verdict& verdict) {
  return NotRight(Prove(scenario, With(edits, candidate)), verdict).empty();
}

// Parameters of which the ranks' marks ask for different rules, with the mark that differs.
std::map<std::string, Mark> DisagreeingMarks(const Scenario& scenario,
                                             std::span<const Edit> edits) {
  const FinalizePreset preset = EffectivePreset(scenario, edits);
  std::map<std::string, Mark> disagreeing;
  for (const auto& [param, classes] : RankClasses(scenario, edits, preset)) {
    for (const RankClass& one : classes) {
      if (one.marks.sequence_parallel != classes[0].marks.sequence_parallel)
        disagreeing[param] = Mark::kSequenceParallel;
      if (one.marks.average_gradients_across_tp_domain !=
          classes[0].marks.average_gradients_across_tp_domain)
        disagreeing[param] = Mark::kAverageGradientsAcrossTpDomain;
      if (one.marks.allreduce != classes[0].marks.allreduce) disagreeing[param] = Mark::kAllreduce;
    }
  }
  return disagreeing;
}

// What the proof says, with the rules that claim the parameter.
Verdict VerdictBehind(const Scenario& scenario, std::span<const Edit> edits, const ProofRun& run,
                      const std::string& param) {
  Verdict verdict;
  verdict.param = param;
  TakeOver(run.proofs.at(param), verdict);
  const FinalizePreset preset = EffectivePreset(scenario, edits);
  std::vector<std::string> rules;
  for (const FinalizeStep& step : preset.steps) {
    const FinalizeRule* rule =
        Claiming(step, *run.model->params().Find(param), EffectiveFinalizeConfig(scenario));
    if (rule) rules.push_back(rule->name);
  }
  verdict.rule = absl::StrJoin(rules, ", ");
  return verdict;
}

// Behind what arrives wrong another fault may stand, which shows once it arrives right: the
// candidate with the cures of those; none if one has none.
std::optional<Candidate> WithFaultsBehind(const Scenario& scenario, std::span<const Edit> edits,
                                          const Candidate& candidate, const Verdict& verdict) {
  const std::vector<Edit> all = With(edits, candidate);
  const ProofRun run = Prove(scenario, all);
  const std::vector<std::string> behind = NotRight(run, verdict);
  if (behind.size() * 2 > verdict.affected.size()) return std::nullopt;  // mends nothing
  Candidate together = candidate;
  for (const std::string& param : behind) {
    const auto proof = run.proofs.find(param);
    if (proof == run.proofs.end() || proof->second.outcome != Outcome::kWrong ||
        proof->second.mechanism == Mechanism::kMixedUse)
      return std::nullopt;
    const std::optional<CureTrial> cure =
        ProposeCure(scenario, all, VerdictBehind(scenario, all, run, param));
    if (!cure) return std::nullopt;
    together.insert(together.end(), cure->edits.begin(), cure->edits.end());
  }
  return together;
}

}  // namespace

std::optional<CureTrial> ProposeCure(const Scenario& scenario, std::span<const Edit> edits,
                                     const Verdict& verdict) {
  // A transport that gets a call wrong is cured by none of ours.
  const auto of_transport = [](const Edit& edit) {
    return std::holds_alternative<CommunicationEdit>(edit.kind);
  };
  if (std::any_of(edits.begin(), edits.end(), of_transport)) return std::nullopt;
  const std::vector<Candidate> candidates = CandidatesFor(scenario, edits, verdict);
  for (const Candidate& candidate : candidates) {
    if (Accepts(scenario, edits, candidate, verdict)) return TrialOf(candidate);
  }
  if (verdict.mechanism != Mechanism::kUpstream) return std::nullopt;
  for (const Candidate& candidate : candidates) {
    const auto together = WithFaultsBehind(scenario, edits, candidate, verdict);
    if (together && Accepts(scenario, edits, *together, verdict)) return TrialOf(*together);
  }
  return std::nullopt;
}

bool Cures(const Scenario& scenario, std::span<const Edit> edits, const CureTrial& cure,
           const Verdict& verdict) {
  return Accepts(scenario, edits, cure.edits, verdict);
}

std::optional<CureTrial> ProposeRunCure(const Scenario& scenario, std::span<const Edit> edits) {
  const std::map<std::string, Mark> disagreeing = DisagreeingMarks(scenario, edits);
  if (disagreeing.empty()) return std::nullopt;
  Verdict verdict;
  for (const auto& [param, mark] : disagreeing) verdict.affected.push_back(param);
  verdict.param = disagreeing.begin()->first;
  for (When when : {When::kAtBuild, When::kAfterBackward}) {
    for (bool set : {true, false}) {
      Candidate candidate;
      for (const auto& [param, mark] : disagreeing)
        candidate.push_back(SetMark(param, mark, set, when));
      if (Accepts(scenario, edits, candidate, verdict)) return TrialOf(candidate);
    }
  }
  return std::nullopt;
}

CureTrial NormCure(std::span<const Miscounted> miscounted) {
  Candidate candidate;
  for (const Miscounted& one : miscounted) {
    const bool own_shard = one.how == Miscount::kOwnShard;
    candidate.push_back(SetMark(one.param,
                                own_shard ? Mark::kAllreduce : Mark::kTensorModelParallel,
                                one.how != Miscount::kEveryCopy));
  }
  return TrialOf(candidate);
}

}  // namespace sumonce

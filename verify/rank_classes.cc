#include "verify/rank_classes.h"

#include <algorithm>
#include <set>

#include "base/status.h"
#include "sim/data.h"
#include "sim/defects/effect.h"
#include "sim/simulator.h"
#include "spmd/abstract_tape.h"

namespace sumonce {
namespace {

// Which of the edits that name ranks act on this one: ranks of one signature have the same marks.
std::vector<bool> Signature(std::span<const Edit> edits, int rank) {
  std::vector<bool> signature;
  for (const Edit& edit : edits) {
    if (const auto* mark = std::get_if<MarkEdit>(&edit.kind))
      signature.push_back(ActsOn(mark->ranks, rank));
  }
  return signature;
}

// A rank's marks once all edits have acted: modules may change them in their forward pass.
std::map<std::string, Marks> MarksOf(const Scenario& scenario, std::span<const Edit> edits,
                                     const Mesh& mesh, int rank) {
  Effects effects(edits, rank);
  ModelConfig config = EffectiveModel(scenario);
  for (const auto& effect : effects.all()) effect->OnConfig(config);
  Model model(config);
  for (const auto& effect : effects.all()) effect->OnBuilt(model.params());
  AbstractTape tape(mesh);
  effects.Attach(tape);
  BatchInputs inputs;
  inputs.sequence = scenario.data.sequence;
  inputs.batch = scenario.data.micro_batch * scenario.mesh.dp;
  inputs.sequence_starts = StartsOf(scenario.data);
  if (config.common.lora.dropout > 0)
    inputs.keeps = [](const std::string&, int64_t) { return true; };
  model.Forward(tape, inputs, LossScale(scenario, mesh));
  for (const auto& effect : effects.all()) effect->OnBackwardDone(model.params());
  std::map<std::string, Marks> marks;
  for (const Param& param : model.params().all()) marks[param.name] = param.marks;
  return marks;
}

std::vector<const FinalizeRule*> RulesFor(const FinalizePreset& preset,
                                          const FinalizeConfig& config, Param param,
                                          const Marks& marks) {
  param.marks = marks;
  std::vector<const FinalizeRule*> rules;
  for (const FinalizeStep& step : preset.steps) rules.push_back(Claiming(step, param, config));
  return rules;
}

// The class that the rank belongs to.
const RankClass& ClassOfRank(std::span<const RankClass> all, int rank) {
  for (const RankClass& one : all) {
    if (std::find(one.ranks.begin(), one.ranks.end(), rank) != one.ranks.end()) return one;
  }
  SUMONCE_CHECK(false) << "rank " << rank << " is in no class";
  return all[0];
}

// Rules of different names may do the same, in one call: one sum for marks and for names.
bool SameEffect(const FinalizeRule* a, const FinalizeRule* b) {
  const auto idle = [](const FinalizeRule* rule) {
    return !rule ||
           (rule->map == Map::kIdentity && rule->divided_by.empty() && !rule->times_inverse_tokens);
  };
  if (idle(a) || idle(b)) return idle(a) && idle(b);
  return a->map == b->map && a->group == b->group && a->divided_by == b->divided_by &&
         a->times_inverse_tokens == b->times_inverse_tokens;
}

bool SameEffects(std::span<const FinalizeRule* const> a, std::span<const FinalizeRule* const> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), SameEffect);
}

bool SameLog(const ParamRecord& a, const ParamRecord& b) {
  const auto same = [](const ParamRecord::Reduction& x, const ParamRecord::Reduction& y) {
    return x.step == y.step && x.map == y.map && x.group == y.group && x.divided_by == y.divided_by;
  };
  if (!std::equal(a.log.begin(), a.log.end(), b.log.begin(), b.log.end(), same)) return false;
  // Steps without a call: the rule is what is known.
  std::set<int> called;
  for (const ParamRecord::Reduction& reduction : a.log) called.insert(reduction.step);
  for (size_t i = 0; i < a.rules.size(); ++i) {
    if (!called.contains(static_cast<int>(i)) && a.rules[i] != b.rules[i]) return false;
  }
  return true;
}

// One reduction, of all ranks' arrays; sums in rank order.
void Reduce(const ParamRecord::Reduction& reduction, const Mesh& mesh,
            std::vector<Tensor>& arrays) {
  const Group group = mesh.GroupOf(AxesOfGroup(reduction.group), reduction.group);
  const int size = mesh.size(group);
  const int divisor =
      reduction.divided_by.empty()
          ? 1
          : mesh.size(mesh.GroupOf(AxesOfGroup(reduction.divided_by), reduction.divided_by));
  if ((size == 1 && divisor == 1) || (reduction.map != Map::kSum && reduction.map != Map::kAvg))
    return;
  std::vector<Tensor> reduced(arrays.size());
  for (size_t rank = 0; rank < arrays.size(); ++rank) {
    Tensor sum(arrays[rank].dims());
    for (int member : mesh.Ranks(group, static_cast<int>(rank))) AddInto(sum, arrays[member]);
    if (!reduction.divided_by.empty()) ScaleInto(sum, 1.0 / divisor);
    if (reduction.map == Map::kAvg) ScaleInto(sum, 1.0 / size);
    reduced[rank] = std::move(sum);
  }
  arrays = std::move(reduced);
}

}  // namespace

FinalizePreset EffectivePreset(const Scenario& scenario, std::span<const Edit> edits) {
  FinalizePreset preset = *Finalizers().Find(scenario.finalizer);
  const Effects effects(edits, kProver);
  for (const auto& effect : effects.all()) effect->OnPreset(preset);
  return preset;
}

std::map<std::string, std::vector<RankClass>> RankClasses(const Scenario& scenario,
                                                          std::span<const Edit> edits,
                                                          const FinalizePreset& preset) {
  std::map<std::string, std::vector<RankClass>> classes;
  const auto of_some_ranks = [](const Edit& edit) {
    const auto* mark = std::get_if<MarkEdit>(&edit.kind);
    return mark && !mark->ranks.empty();
  };
  if (std::none_of(edits.begin(), edits.end(), of_some_ranks)) return classes;
  const Mesh mesh = *Mesh::Create(scenario.mesh);
  const FinalizeConfig config = EffectiveFinalizeConfig(scenario);
  Model model(EffectiveModel(scenario));
  std::map<std::vector<bool>, std::map<std::string, Marks>> marks;  // by signature
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const auto [found, added] = marks.try_emplace(Signature(edits, rank));
    if (added) found->second = MarksOf(scenario, edits, mesh, rank);
    for (const Param& param : model.params().all()) {
      if (!param.requires_grad) continue;
      const Marks& own = found->second.at(param.name);
      std::vector<const FinalizeRule*> rules = RulesFor(preset, config, param, own);
      std::vector<RankClass>& all = classes[param.name];
      const auto same = std::find_if(all.begin(), all.end(), [&](const RankClass& one) {
        return SameEffects(one.rules, rules);
      });
      if (same == all.end()) {
        all.push_back({.ranks = {rank}, .marks = own, .rules = std::move(rules)});
      } else {
        same->ranks.push_back(rank);
      }
    }
  }
  return classes;
}

bool IsByItself(const RankClass& one, std::span<const RankClass> all, const Mesh& mesh) {
  for (size_t step = 0; step < one.rules.size(); ++step) {
    const FinalizeRule* rule = one.rules[step];
    if (!rule || rule->times_inverse_tokens || rule->map == Map::kIdentity) continue;
    const Group group = mesh.GroupOf(rule->axes, rule->group);
    for (int rank : one.ranks) {
      for (int member : mesh.Ranks(group, rank)) {
        const auto& rules = ClassOfRank(all, member).rules;
        const std::span so_far(rules);
        if (!SameEffects(so_far.first(step + 1), std::span(one.rules).first(step + 1)))
          return false;
      }
    }
  }
  return true;
}

std::vector<std::vector<int>> ClassesOf(const ComparedStep& step, const std::string& param) {
  std::vector<std::vector<int>> classes;
  for (size_t rank = 0; rank < step.ranks.size(); ++rank) {
    const ParamRecord& record = step.ranks[rank]->params.at(param);
    const auto same = std::find_if(classes.begin(), classes.end(), [&](const auto& ranks) {
      return SameLog(step.ranks[ranks[0]]->params.at(param), record);
    });
    if (same == classes.end()) {
      classes.push_back({static_cast<int>(rank)});
    } else {
      same->push_back(static_cast<int>(rank));
    }
  }
  return classes;
}

std::vector<Tensor> FinalizedLike(const Mesh& mesh, const ComparedStep& step,
                                  const std::string& param, std::span<const int> ranks) {
  const StepRecord& first = *step.ranks[ranks[0]];
  const ParamRecord& like = first.params.at(param);
  std::vector<Tensor> arrays;
  for (const StepRecord* rank : step.ranks)
    arrays.push_back(rank->params.at(param).contribution.Clone());
  for (size_t i = 0; i < like.after.size(); ++i) {
    const auto call = std::find_if(like.log.begin(), like.log.end(), [&](const auto& reduction) {
      return reduction.step == static_cast<int>(i);
    });
    if (call != like.log.end()) {
      Reduce(*call, mesh, arrays);
    } else if (!like.rules[i].empty()) {
      // No call: times 1/num_tokens, or a rule that does nothing.
      const Tensor& before = i == 0 ? like.contribution : like.after[i - 1];
      if (Compare(before, like.after[i], 0).equal) continue;
      for (Tensor& array : arrays) ScaleInto(array, 1.0 / std::max(first.num_tokens, 1.0));
    }
  }
  for (int rank : ranks) arrays[rank] = step.ranks[rank]->params.at(param).finalized();
  return arrays;
}

}  // namespace sumonce

#include "capture/audit/combine.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce::capture {
namespace {

// Which classes all steps leave; of steps whose replicas had parted before, and of faults that
// every class has, nothing is learnt.
std::vector<Conclusion> ClassesOfAll(std::span<const ParamJudgement> judgements) {
  std::vector<Conclusion> left;
  for (const ParamJudgement& judgement : judgements) {
    if (judgement.conclusions.empty()) continue;
    const bool teaches = !judgement.weights_drifted && !judgement.conclusions.front().any_class();
    if (left.empty() || (left.front().any_class() && teaches)) {
      left = judgement.conclusions;
      continue;
    }
    if (!teaches) continue;
    std::vector<Conclusion> both;
    for (const Conclusion& conclusion : left) {
      const bool stays =
          std::any_of(judgement.conclusions.begin(), judgement.conclusions.end(),
                      [&](const Conclusion& other) { return other.SameClass(conclusion); });
      if (stays) both.push_back(conclusion);
    }
    if (!both.empty()) left = std::move(both);
  }
  return left;
}

// For one class the first step in which something is wrong; else right.
std::pair<Conclusion, const ParamJudgement*> OfClass(const Conclusion& like,
                                                     std::span<const ParamJudgement> judgements) {
  std::optional<Conclusion> right;
  const ParamJudgement* where = nullptr;
  for (const ParamJudgement& judgement : judgements) {
    for (const Conclusion& conclusion : judgement.conclusions) {
      if (!conclusion.SameClass(like) && !conclusion.any_class()) continue;
      // A mixed use is a possibility beside the classes, not a fault that all of them have.
      if (conclusion.any_class() && !like.any_class() && judgement.conclusions.size() > 1) continue;
      if (conclusion.outcome == Outcome::kWrong) return {conclusion, &judgement};
      if (right) continue;
      right = conclusion;
      where = &judgement;
    }
  }
  return {right.value_or(like), where};
}

// Whether a hint that was not used would leave some of the conclusions, and not all.
bool Shrinks(const ClassHint* hint, std::span<const Conclusion> all) {
  if (hint == nullptr) return false;
  if (!hint->upstream.empty()) return true;
  const auto fits = [&](const Conclusion& conclusion) {
    return conclusion.grad_class == hint->grad_class;
  };
  const auto count = std::count_if(all.begin(), all.end(), fits);
  return count > 0 && count < static_cast<int64_t>(all.size());
}

std::string WhatDecides(std::span<const Conclusion> all, const ClassHint* unused_hint) {
  const auto has = [&](GradClass grad_class) {
    return std::any_of(all.begin(), all.end(), [&](const Conclusion& conclusion) {
      return conclusion.grad_class == grad_class;
    });
  };
  if (has(GradClass::kShard)) {
    return "whether it is cut: `layout` in the file, its weight at the first step, or a reference";
  }
  if (has(GradClass::kComplete) || has(GradClass::kEqualShare)) {
    return Shrinks(unused_hint, all)
               ? "the class of its gradient: its module's class (without --no-modules), or a "
                 "reference (--against)"
               : "the class of its gradient, which a reference (--against) tells";
  }
  if (std::any_of(all.begin(), all.end(),
                  [](const Conclusion& conclusion) { return conclusion.complete_over; })) {
    return "a step whose tokens differ between those ranks, or a reference (--against)";
  }
  return "another step, the probe, or a reference (--against)";
}

// The first number in a name, or -1: layers of a model, from the input on.
int LayerOf(const std::string& name) {
  size_t begin = 0;
  while (begin < name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    int layer = 0;
    if (absl::SimpleAtoi(name.substr(begin, end - begin), &layer)) return layer;
    begin = end + 1;
  }
  return -1;
}

bool IsInputSide(const std::string& name) { return name.find("embedding") != name.npos; }

// Whether the gradient of `name` comes through where that of `other` is computed.
bool IsBelow(const std::string& name, const std::string& other) {
  if (LayerOf(name) < 0) return IsInputSide(name);
  return LayerOf(name) <= LayerOf(other);
}

void TakeHintedOperations(const ClassHints& hints, std::vector<AuditedParam>& params) {
  std::map<std::string, std::string> roots;  // operation -> parameter
  for (const AuditedParam& param : params) {
    const auto hint = hints.find(param.name);
    if (hint != hints.end() && hint->second.upstream_root)
      roots.emplace(hint->second.upstream, param.name);
  }
  for (AuditedParam& param : params) {
    const auto hint = hints.find(param.name);
    if (hint == hints.end() || hint->second.upstream.empty()) continue;
    Verdict& verdict = param.verdict;
    const bool own_fault =
        verdict.outcome == Outcome::kWrong && verdict.mechanism != Mechanism::kMissingSum &&
        verdict.mechanism != Mechanism::kMixedUse && verdict.mechanism != Mechanism::kUpstream;
    if (own_fault || verdict.outcome == Outcome::kNoEvidence) continue;
    const auto root = roots.find(hint->second.upstream);
    const bool is_root = root != roots.end() && root->second == param.name;
    if (!(is_root && verdict.mechanism == Mechanism::kMixedUse))
      verdict.mechanism = Mechanism::kUpstream;
    verdict.outcome = Outcome::kWrong;
    verdict.operation = hint->second.upstream;
    verdict.possible.clear();
    verdict.decides.clear();
    verdict.coefficient = "none: a mixture";
    verdict.evidence.push_back(hint->second.source);
    param.consequence = !is_root;
    if (root != roots.end() && !is_root) param.cause = root->second;
  }
}

// How near to the loss a parameter is, and how much it looks like the place where a fault begins:
// right in some rows, complete in some rows.
std::tuple<int, bool, bool> Nearness(const AuditedParam& param) {
  const int layer = LayerOf(param.name);
  const int place = layer >= 0 ? layer : IsInputSide(param.name) ? -1 : INT_MAX;
  return {place, param.partly_right, param.mixed_lines};
}

// Of all gradients that arrive wrong, the one nearest to the loss is the finding; the others
// inherit it.
void ListUpstream(std::vector<AuditedParam>& params) {
  const auto upstream = [](const AuditedParam& param) {
    return param.against && param.verdict.outcome == Outcome::kWrong &&
           param.verdict.mechanism == Mechanism::kUpstream && param.verdict.operation.empty();
  };
  const AuditedParam* root = nullptr;
  for (const AuditedParam& param : params) {
    if (upstream(param) && (root == nullptr || Nearness(param) > Nearness(*root))) root = &param;
  }
  for (AuditedParam& param : params) {
    if (!upstream(param) || &param == root) continue;
    param.consequence = true;
    param.cause = root->name;
  }
}

// The first step before which copies of one weight differ.
std::optional<int64_t> DriftedBefore(std::span<const ParamJudgement> judgements) {
  for (const ParamJudgement& judgement : judgements) {
    if (judgement.weights_drifted) return judgement.step;
    if (judgement.parted_after) return judgement.step + 1;
  }
  return std::nullopt;
}

// Copies that came apart: a consequence of what was found before, or, where nothing was found, the
// finding.
void AddDrift(const ParamGeometry& geometry, std::span<const ParamJudgement> judgements,
              std::span<const Conclusion> conclusions, bool parts, Verdict& verdict) {
  const std::optional<int64_t> step = DriftedBefore(judgements);
  if (!step) return;
  verdict.evidence.push_back(absl::StrCat("its copies differ before step ", *step));
  if (verdict.outcome == Outcome::kWrong) return;
  std::erase(verdict.possible, "RIGHT");
  if (!verdict.possible.empty())
    verdict.possible.push_back(std::string(Name(Mechanism::kReplicaDrift)));
  // The finalizer leaves the copies with different gradients, which parts them: if a class makes
  // that its fault, it explains both.
  for (const Conclusion& conclusion : conclusions) {
    if (!parts || conclusion.outcome != Outcome::kWrong) continue;
    const std::vector<std::string> possible = verdict.possible;
    const std::vector<std::string> evidence = verdict.evidence;
    const int at = verdict.step;
    verdict = VerdictOf({&conclusion, 1}, nullptr);
    verdict.step = at;
    verdict.possible = possible;
    verdict.evidence = evidence;
    verdict.consequences.push_back(Mechanism::kReplicaDrift);
    return;
  }
  verdict.outcome = Outcome::kWrong;
  verdict.mechanism = Mechanism::kReplicaDrift;
  verdict.axis = geometry.tensor > 1 ? geometry.tensor_axis() : geometry.data_axis;
  verdict.coefficient = "none: per rank";
  verdict.step = static_cast<int>(*step);
}

}  // namespace

Verdict VerdictOf(std::span<const Conclusion> conclusions, const ClassHint* unused_hint) {
  SUMONCE_CHECK(!conclusions.empty()) << "no conclusion";
  std::vector<std::string> words;
  const auto add = [&](std::string word) {
    if (std::find(words.begin(), words.end(), word) == words.end())
      words.push_back(std::move(word));
  };
  const Conclusion* wrong = nullptr;
  for (const Conclusion& conclusion : conclusions) {
    add(WordOf(conclusion));
    for (const Mechanism mechanism : conclusion.also) add(std::string(Name(mechanism)));
    if (wrong == nullptr && conclusion.outcome == Outcome::kWrong) wrong = &conclusion;
  }
  const bool may_be_right = std::find(words.begin(), words.end(), "RIGHT") != words.end();
  const Conclusion& first = wrong != nullptr && !may_be_right ? *wrong : conclusions.front();
  Verdict verdict;
  verdict.outcome = first.outcome;
  verdict.mechanism = first.mechanism;
  verdict.axis = first.axis;
  verdict.coefficient = first.coefficient;
  verdict.factor = first.factor;
  verdict.action = first.action;
  verdict.operation = first.operation;
  verdict.grad_class = conclusions.size() == 1 ? first.grad_class : GradClass::kUnknown;
  for (const std::string& sentence : first.evidence) verdict.evidence.push_back(sentence);
  if (words.size() == 1) return verdict;
  std::sort(words.begin(), words.end());
  verdict.possible = words;
  verdict.decides = WhatDecides(conclusions, unused_hint);
  if (!may_be_right) return verdict;
  verdict.outcome = Outcome::kNoStatement;
  verdict.mechanism = Mechanism::kNone;
  verdict.operation.clear();
  verdict.coefficient.clear();
  verdict.factor.reset();
  return verdict;
}

AuditedParam Combine(const ParamGeometry& geometry, std::span<const ParamJudgement> judgements,
                     const ClassHint* unused_hint) {
  AuditedParam param{.name = geometry.name(), .kind = geometry.kind};
  Verdict& verdict = param.verdict;
  const ParamJudgement* decided = nullptr;
  std::vector<Conclusion> conclusions;
  for (const Conclusion& like : ClassesOfAll(judgements)) {
    auto [conclusion, where] = OfClass(like, judgements);
    if (decided == nullptr || (conclusion.outcome == Outcome::kWrong &&
                               (where->step < decided->step || conclusions.empty() ||
                                conclusions.front().outcome != Outcome::kWrong)))
      decided = where;
    conclusions.push_back(std::move(conclusion));
  }
  if (conclusions.empty()) {
    const bool nothing = std::all_of(judgements.begin(), judgements.end(),
                                     [](const ParamJudgement& j) { return j.no_evidence; });
    verdict.outcome = nothing ? Outcome::kNoEvidence : Outcome::kNoStatement;
    for (const ParamJudgement& judgement : judgements) {
      if (!judgement.no_statement.empty() && verdict.evidence.empty())
        verdict.evidence.push_back(judgement.no_statement);
    }
    if (nothing) {
      verdict.evidence.push_back("its gradient is exactly zero on every rank");
      verdict.decides = "a step in which it is not";
    }
    decided = &judgements.front();
  } else {
    verdict = VerdictOf(conclusions, unused_hint);
    verdict.evidence.insert(verdict.evidence.begin(), decided->class_evidence.begin(),
                            decided->class_evidence.end());
  }
  verdict.step = static_cast<int>(decided->step);
  AddDrift(geometry, judgements, conclusions, decided->replicas_part, verdict);
  verdict.param = param.name;
  verdict.shape = decided->shape;
  verdict.per_rank = decided->per_rank;
  param.by_difference_alone = verdict.outcome == Outcome::kWrong && decided->by_difference_alone;
  param.mixed_lines = decided->mixed_lines;
  param.partly_right = decided->partly_right;
  for (const ParamJudgement& judgement : judgements) {
    if (judgement.against && !param.against) param.reference_error = judgement.reference_error;
    param.against |= judgement.against;
    if (param.not_compared.empty()) param.not_compared = judgement.not_compared;
  }
  if (verdict.outcome == Outcome::kWrong && decided->replicas_part)
    verdict.consequences.push_back(Mechanism::kReplicaDrift);
  for (int h = 0; h < geometry.count(); ++h) {
    if (!geometry.holders[h].present() || decided->figures.empty()) continue;
    param.norms.emplace_back(geometry.holders[h].rank,
                             std::sqrt(decided->figures[h].finalized_square));
    if (!decided->ratios.empty() && decided->ratios[h] >= 0)
      param.ratios.emplace_back(geometry.holders[h].rank, decided->ratios[h]);
  }
  return param;
}

void ListConsequences(const ClassHints* hints, std::vector<AuditedParam>& params) {
  if (hints) TakeHintedOperations(*hints, params);
  ListUpstream(params);
  // The mixed use nearest to the loss.
  const AuditedParam* root = nullptr;
  for (const AuditedParam& param : params) {
    if (param.verdict.mechanism != Mechanism::kMixedUse) continue;
    if (root == nullptr || LayerOf(param.name) > LayerOf(root->name)) root = &param;
  }
  if (root == nullptr) return;
  for (AuditedParam& param : params) {
    Verdict& verdict = param.verdict;
    if (&param == root || verdict.mechanism != Mechanism::kMissingSum) continue;
    if (!param.by_difference_alone || param.against || !IsBelow(param.name, root->name)) continue;
    verdict.mechanism = Mechanism::kUpstream;
    verdict.coefficient = "none: a mixture";
    verdict.evidence.push_back(absl::StrCat(
        "it differs between ranks because what arrives there does: ", root->name,
        ", nearer to the loss, hands on a gradient that is complete in part and partial in part"));
    param.consequence = true;
    param.cause = root->name;
  }
}

}  // namespace sumonce::capture

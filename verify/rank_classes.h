// Ranks whose marks differ run different rules of the finalizer on one parameter. Where no call
// has members that do otherwise, each such class of ranks ends as if all ranks did what it does:
// its part of the answer is that run's.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "sim/finalize/finalizer.h"
#include "sim/scenario.h"
#include "verify/diagnose.h"

namespace sumonce {

// The scenario's finalizer with the edits of its rules.
FinalizePreset EffectivePreset(const Scenario& scenario, std::span<const Edit> edits);

// Ranks on which the rules that claim a parameter do the same, step by step.
struct RankClass {
  std::vector<int> ranks;                  // ascending
  Marks marks;                             // when the finalizer reads them; of its first rank
  std::vector<const FinalizeRule*> rules;  // by step of the preset; null: none
};

// Of every trained parameter, by its first rank; one class where all ranks do the same. Empty if no
// edit sets marks on some ranks only. `preset`: with the edits; the rules point into it.
std::map<std::string, std::vector<RankClass>> RankClasses(const Scenario& scenario,
                                                          std::span<const Edit> edits,
                                                          const FinalizePreset& preset);

// Whether every call that a rank of the class makes for the parameter has only members that have
// run the same rules so far.
bool IsByItself(const RankClass& one, std::span<const RankClass> all, const Mesh& mesh);

// From records: the ranks by what their finalizer did to the parameter.
std::vector<std::vector<int>> ClassesOf(const ComparedStep& step, const std::string& param);

// The gradients of all ranks after the finalizer if every rank had done what `ranks` did; theirs as
// recorded.
std::vector<Tensor> FinalizedLike(const Mesh& mesh, const ComparedStep& step,
                                  const std::string& param, std::span<const int> ranks);

}  // namespace sumonce

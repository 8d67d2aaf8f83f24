#include "capture/lint/cures.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce::lint {
namespace {

struct Change {
  std::optional<bool> sequence_parallel;
  std::optional<bool> average;
  bool allreduce = false;  // sets it
};

// The fewest marks first, and a sum before a mean.
constexpr Change kChanges[] = {{.allreduce = true},
                               {.sequence_parallel = true},
                               {.sequence_parallel = false},
                               {.average = false},
                               {.average = true},
                               {.sequence_parallel = true, .average = false},
                               {.sequence_parallel = false, .average = false},
                               {.sequence_parallel = true, .allreduce = true},
                               {.sequence_parallel = false, .allreduce = true}};

bool Changes(const std::optional<bool>& wanted, bool found) { return wanted && *wanted != found; }

Marks Changed(Marks marks, const Change& change) {
  marks.sequence_parallel = change.sequence_parallel.value_or(marks.sequence_parallel);
  marks.average_gradients_across_tp_domain =
      change.average.value_or(marks.average_gradients_across_tp_domain);
  marks.allreduce |= change.allreduce;
  return marks;
}

MarkCure CureOf(const std::string& name, const ParamStatement& statement, const Change& change) {
  MarkCure cure;
  std::vector<std::string> words;
  const auto set = [&](Mark mark, bool value) {
    cure.edits.push_back({.param = name, .mark = mark, .set = value});
    words.push_back(absl::StrCat(ToAbsl(Name(mark)), " = ", value ? "True" : "False"));
  };
  if (Changes(change.sequence_parallel, statement.marks.sequence_parallel))
    set(Mark::kSequenceParallel, *change.sequence_parallel);
  if (Changes(change.average, statement.marks.average_gradients_across_tp_domain))
    set(Mark::kAverageGradientsAcrossTpDomain, *change.average);
  if (change.allreduce && !statement.marks.allreduce) set(Mark::kAllreduce, true);
  cure.text = absl::StrCat("set ", absl::StrJoin(words, " and "), " on the parameter ", name);
  if (!statement.module.empty()) absl::StrAppend(&cure.text, " of ", statement.module);
  return cure;
}

}  // namespace

bool NamedQkNorm(const std::string& name) {
  return absl::StrContains(name, "q_layernorm") || absl::StrContains(name, "k_layernorm");
}

std::optional<MarkCure> FindCure(const ManifestFinalizer& finalizer, const std::string& name,
                                 const ParamStatement& statement, const ParamState& state) {
  const auto right = [&](const Marks& marks, const FinalizeConfig& config) {
    return finalizer.Finalized(name, marks, state, config).outcome == Outcome::kRight;
  };
  for (const Change& change : kChanges) {
    const Marks marks = Changed(statement.marks, change);
    if (marks == statement.marks || !right(marks, finalizer.config())) continue;
    return CureOf(name, statement, change);
  }
  FinalizeConfig config = finalizer.config();
  config.qk_layernorm = true;
  if (NamedQkNorm(name) && !finalizer.config().qk_layernorm && right(statement.marks, config)) {
    return MarkCure{.edits = {},
                    .text =
                        "set qk_layernorm = True in the configuration: the finalizer takes "
                        "q_layernorm and k_layernorm by their names then"};
  }
  return std::nullopt;
}

}  // namespace sumonce::lint

#include "capture/lint/statements.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/text.h"
#include "capture/lint/cures.h"
#include "capture/lint/prove_alone.h"
#include "capture/lint/prove_manifest.h"
#include "capture/lint/upstream.h"
#include "verify/judge.h"

namespace sumonce::lint {
namespace {

using capture::Manifest;
using capture::ManifestParam;

// All ranks as one: the parameters of each, the modules of whoever has them.
Manifest Merged(std::span<const Manifest> manifests) {
  Manifest merged = manifests.front();
  for (const Manifest& manifest : manifests) {
    for (const auto& [name, param] : manifest.params) merged.params.emplace(name, param);
    for (const auto& [path, module] : manifest.modules) merged.modules.emplace(path, module);
  }
  return merged;
}

// Reduced with the experts' gradients, over the expert data-parallel group; the same ranks as dp
// where there are no experts.
bool ExpertGroupIsDense(const Manifest& manifest) {
  const auto edp = manifest.groups.find("edp"), dense = manifest.groups.find("dp_cp");
  if (edp == manifest.groups.end() || dense == manifest.groups.end()) return false;
  return edp->second == dense->second;
}

Marks MarksOf(const Manifest& manifest, const ManifestParam& param) {
  const auto set = [&](const char* name) { return capture::IsSet(param.marks, name); };
  return {.sequence_parallel = set("sequence_parallel"),
          .average_gradients_across_tp_domain = set("average_gradients_across_tp_domain"),
          .tensor_model_parallel = set("tensor_model_parallel"),
          .partition_dim =
              static_cast<int>(capture::IntegerOf(param.marks, "partition_dim").value_or(-1)),
          .allreduce = capture::FlagOf(param.marks, "allreduce").value_or(true) ||
                       ExpertGroupIsDense(manifest),
          .shared = set("shared")};
}

// What states one parameter after the other.
class Stater {
 public:
  Stater(std::span<const Manifest> manifests, const StateOptions& options)
      : manifests_(manifests),
        options_(options),
        merged_(Merged(manifests)),
        tree_(merged_, [&](const std::string& path, const std::string& class_name) {
          const ModuleMapEntry* entry = options.module_map.Find(path, class_name);
          return entry && entry->acts_as ? *entry->acts_as : KindOfClass(class_name);
        }) {}

  Statements Run() {
    statements_.map = MapModel(merged_, tree_);
    statements_.refused = statements_.map.refused;
    if (statements_.refused.empty()) Prove();
    for (const auto& [name, param] : merged_.params) {
      if (!param.requires_grad) {
        ++statements_.frozen;
        continue;
      }
      statements_.params[name] = StatementOf(name, param);
    }
    if (run_) statements_.conditions = run_->conditions;
    mended_.reset();
    return std::move(statements_);
  }

 private:
  void Prove() {
    run_.emplace(sumonce::Prove(statements_.map.scenario, {}));
    if (!run_->refused.empty()) {
      statements_.refused = run_->refused;
      return;
    }
    finalizer_.emplace(*run_, statements_.map.scenario);
    mended_.emplace(statements_.map);
    for (const Param& param : run_->model->params().all())
      targets_[param.name] = param.shards.Target(*run_->mesh);
  }

  ParamStatement StatementOf(const std::string& name, const ManifestParam& param) {
    ParamStatement statement;
    statement.kind = PatternOf(name);
    statement.module = tree_.ClassAt(tree_.OwnerOf(name));
    statement.marks = MarksOf(merged_, param);
    statement.shape = absl::StrCat("[", absl::StrJoin(param.shape, ", "), "] ", param.dtype);
    statement.proof.param = name;
    if (!statements_.refused.empty()) return Unsaid(statement, statements_.refused);
    std::vector<std::string> rules = finalizer_->Claims(name, statement.marks);
    std::erase(rules, "");
    statement.rules = absl::StrJoin(rules, ", ");
    const std::optional<ParamState> state = StateOf(name, statement);
    if (!state) return statement;
    if (state->before.lost || state->before.off) return Lost(statement, state->before);
    if (!statement.marks.allreduce && !statements_.map.expert_groups) {
      return Unsaid(
          statement,
          "it is reduced with the experts' gradients (allreduce=False), and the file does "
          "not say over which ranks (groups.edp) or says others than Megatron's order");
    }
    if (NamedQkNorm(name) && finalizer_->mesh().size(Axis::kTp) > 1 &&
        !capture::FlagOf(merged_.config, "qk_layernorm")) {
      return Unsaid(statement,
                    "config.qk_layernorm is missing: whether the finalizer takes it by its name is "
                    "not known");
    }
    if (const std::string differing = DifferingMarks(name); !differing.empty()) {
      statement.proof.outcome = Outcome::kWrong;
      statement.proof.mechanism = Mechanism::kCollectiveMismatch;
      statement.proof.reason = differing;
      return statement;
    }
    statement.proof = finalizer_->Finalized(name, statement.marks, *state, finalizer_->config());
    statement.tp_class =
        ClassOf(state->before, finalizer_->sound_scale(), Axis::kTp, finalizer_->mesh());
    statement.needed = NeededFor(statement.tp_class);
    statement.norm_miscount = NormMiscount(statement, *state);
    if (statement.proof.outcome == Outcome::kWrong)
      statement.cure = FindCure(*finalizer_, name, statement, *state);
    NameGroup(statement);
    return statement;
  }

  // Terms that are missing because another group was summed over.
  static void NameGroup(ParamStatement& statement) {
    if (statement.proof.mechanism != Mechanism::kMissingSum || !statement.cure) return;
    const std::vector<MarkEdit>& edits = statement.cure->edits;
    if (edits.size() != 1 || edits[0].mark != Mark::kAllreduce) return;
    statement.proof.mechanism = Mechanism::kWrongGroup;
    statement.proof.axis = Axis::kEdp;
  }

  // Where the class comes from, first the most certain: a trace, the user's word, the proof.
  std::optional<ParamState> StateOf(const std::string& name, ParamStatement& statement) {
    if (const auto traced = options_.traced.find(name); traced != options_.traced.end()) {
      statement.source = "trace";
      return finalizer_->StateOf(traced->second);
    }
    if (const GradClass said = ClassInModuleMap(name); said != GradClass::kUnknown) {
      statement.source = "module map";
      return finalizer_->StateOf(said);
    }
    statement.source = "proof";
    if (const auto ours = statements_.map.params.find(name); ours != statements_.map.params.end()) {
      const auto before = run_->before.find(ours->second);
      if (before != run_->before.end()) return ParamState{before->second, targets_[ours->second]};
      Unsaid(statement, "no gradient reaches it in the model");
      return std::nullopt;
    }
    const auto& routers = statements_.map.routers;
    if (std::find(routers.begin(), routers.end(), name) != routers.end()) {
      return ParamState{ProveOnOwnTokens(finalizer_->mesh(), finalizer_->config().sequence_parallel,
                                         finalizer_->sound_scale()),
                        State()};
    }
    Unsaid(statement, ReasonFor(name, statements_.map, tree_));
    return std::nullopt;
  }

  GradClass ClassInModuleMap(const std::string& name) const {
    for (std::string path = tree_.OwnerOf(name); !path.empty(); path = tree_.OwnerOf(path)) {
      const ModuleMapEntry* entry =
          options_.module_map.Find(path, std::string(tree_.ClassAt(path)));
      if (!entry) continue;
      for (const ModuleMapEntry::ParamClass& param : entry->params) {
        if (GlobMatches(param.name, name.substr(path.size() + 1))) return param.grad_class;
      }
    }
    return GradClass::kUnknown;
  }

  static ParamStatement& Unsaid(ParamStatement& statement, const std::string& reason) {
    statement.proof.outcome = Outcome::kNoStatement;
    statement.proof.reason = reason;
    return statement;
  }

  // A complete and a partial gradient that meet above are no gradient of the reference's, whatever
  // is done below; other losses are the prover's own limits.
  ParamStatement& Lost(ParamStatement& statement, const State& state) {
    const Fault fault = state.lost ? state.lost : state.off;
    statement.proof.reason = fault.reason;
    statement.proof.before = sumonce::Describe(state, finalizer_->mesh());
    statement.proof.outcome = Outcome::kNoStatement;
    const auto ours = statements_.map.params.find(statement.proof.param);
    if (ours == statements_.map.params.end()) return statement;
    statement.norm_miscount = NormMiscount(statement, {state, targets_[ours->second]});
    const Proof& proof = run_->proofs.at(ours->second);
    statement.proof.operation = AsInManifest(proof.operation, statements_.map);
    if (fault.reason != kMixedUse) return statement;
    const State* mended = mended_->StateOf(proof.operation, ours->second);
    if (mended && OwnFault(statement, {*mended, targets_[ours->second]})) return statement;
    statement.proof.outcome = Outcome::kWrong;
    statement.proof.mechanism =
        proof.mechanism == Mechanism::kMixedUse ? Mechanism::kMixedUse : Mechanism::kUpstream;
    statement.proof.axis = Axis::kTp;
    statement.proof.coefficient = "none: a mixture";
    statement.head = HeadOf(fault);
    if (mended) statement.cure = MarkCure{.edits = {}, .text = mended_->Says(proof.operation)};
    return statement;
  }

  // What would be wrong even if its gradient arrived right: a fault of its own.
  bool OwnFault(ParamStatement& statement, const ParamState& mended) {
    const std::string name = statement.proof.param;
    const Proof own = finalizer_->Finalized(name, statement.marks, mended, finalizer_->config());
    if (own.outcome != Outcome::kWrong) return false;
    const std::string operation = statement.proof.operation;
    statement.proof = own;
    statement.proof.reason = absl::StrCat("besides, its gradient arrives wrong from ", operation);
    statement.tp_class =
        ClassOf(mended.before, finalizer_->sound_scale(), Axis::kTp, finalizer_->mesh());
    statement.needed = NeededFor(statement.tp_class);
    statement.cure = FindCure(*finalizer_, name, statement, mended);
    return true;
  }

  // The manifest's parameter whose use the fault was raised at.
  const std::string& HeadOf(const Fault& fault) {
    const auto [head, added] = heads_.try_emplace(fault.operation);
    const std::string at = added ? ParamAt(*run_, fault.operation) : "";
    if (at.empty()) return head->second;
    for (const auto& [name, ours] : statements_.map.params) {
      if (ours == at) head->second = name;
    }
    return head->second;
  }

  // "sequence_parallel is set on rank 0 and not on rank 1": calls that do not match, or a sum that
  // some ranks do not take part in.
  std::string DifferingMarks(const std::string& name) const {
    const Manifest* first = nullptr;
    for (const Manifest& manifest : manifests_) {
      const auto param = manifest.params.find(name);
      if (param == manifest.params.end()) continue;
      if (!first) {
        first = &manifest;
        continue;
      }
      const Marks a = MarksOf(*first, first->params.at(name)), b = MarksOf(manifest, param->second);
      if (finalizer_->Claims(name, a) == finalizer_->Claims(name, b)) continue;
      return absl::StrCat("the finalizer treats it on rank ", first->rank,
                          " otherwise than on rank ", manifest.rank, ": their marks differ");
    }
    return "";
  }

  static std::string NeededFor(GradClass grad_class) {
    switch (grad_class) {
      case GradClass::kPartial:
      case GradClass::kEqualShare:
        return "SUM";
      case GradClass::kComplete:
        return "none or AVG";
      case GradClass::kShard:
        return "none";
      default:
        return "";
    }
  }

  // megatron/core/optimizer: a gradient counts on a rank if it is marked tensor_model_parallel, or
  // on the first tp rank.
  std::string NormMiscount(const ParamStatement& statement, const ParamState& state) const {
    const Group tp = finalizer_->mesh().GroupOf(Axis::kTp);
    // With the experts' gradients it counts in their norm, over other ranks.
    if (tp.atomic.empty() || !statement.marks.allreduce) return "";
    if (statement.marks.shared) return "it is marked shared: the norm leaves it out";
    const bool shard = state.target[tp.atomic[0]].layout == Layout::kShard;
    const bool marked = statement.marks.tensor_model_parallel;
    if (shard == marked) return "";
    return shard
               ? "it is cut over tp but not marked tensor_model_parallel: the norm counts rank 0's "
                 "part alone"
               : "every rank holds it whole, but it is marked tensor_model_parallel: the norm "
                 "counts it tp times";
  }

  std::span<const Manifest> manifests_;
  const StateOptions& options_;
  Manifest merged_;
  ModuleTree tree_;
  Statements statements_;
  std::optional<ProofRun> run_;
  std::optional<ManifestFinalizer> finalizer_;
  std::map<std::string, State> targets_;
  std::optional<MendedProofs> mended_;
  std::map<int, std::string> heads_;  // by operation
};

}  // namespace

absl::StatusOr<Statements> StateParameters(std::span<const Manifest> manifests,
                                           const StateOptions& options) {
  if (manifests.empty()) return absl::InvalidArgumentError("there is no manifest to state");
  return Stater(manifests, options).Run();
}

std::map<std::string, GradClass> ClassesOf(const Statements& statements) {
  std::map<std::string, GradClass> classes;
  for (const auto& [name, statement] : statements.params) {
    if (statement.tp_class != GradClass::kUnknown) classes[name] = statement.tp_class;
  }
  return classes;
}

}  // namespace sumonce::lint

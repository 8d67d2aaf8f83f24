// What finalize_model_grads does, as data: ordered steps of rules. Inside a step the first rule
// that claims a parameter wins; across steps the effects add up; parameters of one list travel in
// one coalesced buffer (docs/THEORY.md "Finalizers";
// megatron/core/distributed/finalize_model_grads.py). The same rules run on numbers and on states.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "spmd/numeric_tape.h"
#include "spmd/param.h"

namespace sumonce {

// The switches of the framework's configuration that rules read.
struct FinalizeConfig {
  bool sequence_parallel = false;
  bool qk_layernorm = false;
  bool per_token_loss = true;
};

struct FinalizeRule {
  std::string name;        // "sequence_parallel_sum"
  std::string says;        // one line for `explain` and reports: what it claims
  std::vector<Axis> axes;  // the group
  std::string group;       // its name: "tp", "dp", "tp_dp", "edp"
  Map map = Map::kSum;
  std::string divided_by;  // times 1/size of this group before the sum (DDP's gradient scaling);
                           // "": not
  bool times_inverse_tokens = false;  // times the runtime number 1/num_tokens, no communication
  std::function<bool(const Param&, const FinalizeConfig&)> claims;
  std::string only;  // an edited copy, for the parameters of this glob; empty: the framework's own
};

struct FinalizeStep {
  std::string name;  // "data_parallel", "tensor_parallel", "per_token"
  std::vector<FinalizeRule> rules;
};

struct FinalizePreset {
  std::string name;  // "megatron_core_0_16"
  std::vector<FinalizeStep> steps;
  // Of a parameter that is marked allreduce=false the gradient norm counts the copy of the first
  // rank in etp; else in tp, as of all others (param_is_not_tensor_parallel_duplicate).
  bool experts_counted_by_etp = false;
  const FinalizeRule* FindRule(const std::string& rule) const;
};

// The axes of a group that a rule or an edit may name: "tp", "dp", "tp_dp", "kv_copies", "edp".
std::vector<Axis> AxesOfGroup(const std::string& group);

class FinalizerRegistry {
 public:
  void Add(FinalizePreset preset);
  absl::StatusOr<FinalizePreset> Find(
      const std::string& name) const;  // NotFound: names there are, nearest one
  std::vector<std::string> names() const;

 private:
  std::map<std::string, FinalizePreset> presets_;
};
void RegisterAllFinalizers(
    FinalizerRegistry& registry);  // generated from sim/finalize/presets/*.cc
const FinalizerRegistry& Finalizers();

// The rule of `step` that claims the parameter, or null.
const FinalizeRule* Claiming(const FinalizeStep& step, const Param& param,
                             const FinalizeConfig& config);

// The parameters of one list: the same call with the same scaling, so they travel in one buffer.
struct CoalescedList {
  const FinalizeRule* rule = nullptr;  // the first of the list's
  std::vector<Param*> params;          // in the model's order; none: no call is made
};
// The lists of one step, in the order in which they are reduced.
std::vector<CoalescedList> CoalescedLists(const FinalizeStep& step, const FinalizeConfig& config,
                                          std::deque<Param>& params);

// One call that a step makes: the list of parameters that travel in one buffer, each with its
// rank's own elements, one behind the other.
struct FinalizeCall {
  std::string label;  // "finalizer data_parallel/data_parallel_sum"
  Group group;
  std::vector<const Param*> params;
};
// The calls of a step on this mesh, in order; the same on every rank whose marks agree. What needs
// no peer makes none.
std::vector<FinalizeCall> CallsOf(const FinalizeStep& step, const FinalizeConfig& config,
                                  const Mesh& mesh, std::deque<Param>& params);

// Numbers: runs one step over the rank's main_grads, one call per list, in the elements' type.
absl::Status RunFinalizeStep(const FinalizeStep& step, const FinalizeConfig& config,
                             const Mesh& mesh, int rank, const GroupComms* comms, double num_tokens,
                             DType main_grad_dtype, std::deque<Param>& params);

// States: what the step makes of one parameter's gradient.
State ApplyFinalizeStep(const FinalizeStep& step, const FinalizeConfig& config, const Mesh& mesh,
                        const Param& param, State state);

}  // namespace sumonce

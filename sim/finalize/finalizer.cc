#include "sim/finalize/finalizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/text.h"
#include "sim/precision.h"

namespace sumonce {
namespace {

// Rules of one list: the same call with the same scaling.
bool SameList(const FinalizeRule& a, const FinalizeRule& b) {
  return a.map == b.map && a.group == b.group && a.divided_by == b.divided_by &&
         a.times_inverse_tokens == b.times_inverse_tokens;
}

Tensor Flatten(const std::vector<Param*>& params, double factor) {
  std::vector<double> flat;
  for (const Param* param : params) {
    for (double value : param->main_grad.values()) flat.push_back(value * factor);
  }
  const int64_t count = static_cast<int64_t>(flat.size());
  return Tensor({Plain(Dim::kIn, count)}, std::move(flat));
}

void Unflatten(const Tensor& flat, const std::vector<Param*>& params) {
  int64_t at = 0;
  for (Param* param : params) {
    std::copy_n(flat.data() + at, param->main_grad.count(), param->main_grad.data());
    at += param->main_grad.count();
  }
}

// The group by whose size a rule divides.
Group Divisor(const FinalizeRule& rule, const Mesh& mesh) {
  return mesh.GroupOf(AxesOfGroup(rule.divided_by), rule.divided_by);
}

std::string LabelOf(const FinalizeStep& step, const CoalescedList& list) {
  return absl::StrCat("finalizer ", step.name, "/", list.rule->name);
}

// An all-reduce of values that `Element` holds exactly, in buffers of it.
template <typename Element, typename To, typename From>
absl::StatusOr<Tensor> ReducedAs(DType dtype, To to, From from, Communicator& comm, ReduceOp op,
                                 const Tensor& flat, const std::string& label) {
  std::vector<Element> in, out(flat.count());
  in.reserve(flat.count());
  for (const double value : flat.values()) in.push_back(to(static_cast<float>(value)));
  SUMONCE_RETURN_IF_ERROR(comm.AllReduce({in.data(), flat.count(), dtype, MemoryKind::kHost},
                                         {out.data(), flat.count(), dtype, MemoryKind::kHost}, op,
                                         label));
  Tensor reduced(flat.dims());
  for (int64_t i = 0; i < flat.count(); ++i) reduced.data()[i] = from(out[i]);
  return reduced;
}

absl::StatusOr<Tensor> Reduced(const FinalizeRule& rule, DType dtype, const Group& group,
                               const Mesh& mesh, int rank, Communicator& comm, const Tensor& flat,
                               const std::string& label) {
  if (rule.map == Map::kIdentity || dtype == DType::kFloat64)
    return RunMap({.map = rule.map}, group, mesh, rank, &comm, flat, label);
  SUMONCE_CHECK(rule.map == Map::kSum || rule.map == Map::kAvg) << Name(rule.map);
  const ReduceOp op = rule.map == Map::kSum ? ReduceOp::kSum : ReduceOp::kAvg;
  if (dtype == DType::kFloat32) {
    const auto same = [](float value) { return value; };
    return ReducedAs<float>(dtype, same, same, comm, op, flat, label);
  }
  return ReducedAs<BFloat16>(
      dtype, BFloat16::FromFloat, [](BFloat16 value) { return value.ToFloat(); }, comm, op, flat,
      label);
}

absl::Status RunList(const FinalizeStep& step, const CoalescedList& list, const Mesh& mesh,
                     int rank, const GroupComms* comms, double num_tokens, DType dtype) {
  const FinalizeRule& rule = *list.rule;
  if (rule.times_inverse_tokens) {
    for (Param* param : list.params) {
      ScaleInto(param->main_grad, 1.0 / std::max(num_tokens, 1.0));
      RoundInto(dtype, param->main_grad);
    }
    return absl::OkStatus();
  }
  const Group group = mesh.GroupOf(rule.axes, rule.group);
  const int size = mesh.size(group);
  if (list.params.empty() || size == 1) return absl::OkStatus();
  SUMONCE_ASSIGN_OR_RETURN(Communicator * comm, comms->Find(group));
  const double factor = rule.divided_by.empty() ? 1.0 : 1.0 / mesh.size(Divisor(rule, mesh));
  Tensor flat = Flatten(list.params, factor);
  RoundInto(dtype, flat);
  SUMONCE_ASSIGN_OR_RETURN(const Tensor reduced, Reduced(rule, dtype, group, mesh, rank, *comm,
                                                         flat, LabelOf(step, list)));
  Unflatten(reduced, list.params);
  return absl::OkStatus();
}

}  // namespace

const FinalizeRule* FinalizePreset::FindRule(const std::string& rule) const {
  for (const FinalizeStep& step : steps) {
    for (const FinalizeRule& candidate : step.rules) {
      if (candidate.name == rule) return &candidate;
    }
  }
  return nullptr;
}

std::vector<Axis> AxesOfGroup(const std::string& group) {
  if (group == "tp") return {Axis::kTp};
  if (group == "dp") return {Axis::kDp};
  if (group == "edp") return {Axis::kEdp};
  if (group == "kv_copies") return {Axis::kKvCopy};
  SUMONCE_CHECK(group == "tp_dp") << "group " << group;
  return {Axis::kDp, Axis::kTp};
}

void FinalizerRegistry::Add(FinalizePreset preset) {
  const std::string name = preset.name;
  SUMONCE_CHECK(presets_.emplace(name, std::move(preset)).second)
      << "two finalizers are named " << name;
}

absl::StatusOr<FinalizePreset> FinalizerRegistry::Find(const std::string& name) const {
  const auto found = presets_.find(name);
  if (found != presets_.end()) return found->second;
  return absl::NotFoundError(
      absl::StrCat("unknown finalizer \"", name, "\"; there are: ", absl::StrJoin(names(), ", ")));
}

std::vector<std::string> FinalizerRegistry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, preset] : presets_) names.push_back(name);
  return names;
}

const FinalizerRegistry& Finalizers() {
  static const FinalizerRegistry* registry = [] {
    auto* filled = new FinalizerRegistry;
    RegisterAllFinalizers(*filled);
    return filled;
  }();
  return *registry;
}

const FinalizeRule* Claiming(const FinalizeStep& step, const Param& param,
                             const FinalizeConfig& config) {
  if (!param.requires_grad) return nullptr;
  for (const FinalizeRule& rule : step.rules) {
    if (rule.claims(param, config)) return &rule;
  }
  return nullptr;
}

std::vector<CoalescedList> CoalescedLists(const FinalizeStep& step, const FinalizeConfig& config,
                                          std::deque<Param>& params) {
  std::vector<CoalescedList> lists;
  for (const FinalizeRule& rule : step.rules) {
    const auto same = [&](const CoalescedList& list) { return SameList(*list.rule, rule); };
    if (std::none_of(lists.begin(), lists.end(), same))
      lists.push_back({.rule = &rule, .params = {}});
  }
  for (Param& param : params) {
    const FinalizeRule* rule = Claiming(step, param, config);
    if (!rule) continue;
    for (CoalescedList& list : lists) {
      if (SameList(*list.rule, *rule)) list.params.push_back(&param);
    }
  }
  // Megatron reduces the summed list before the averaged one.
  std::stable_sort(lists.begin(), lists.end(), [](const CoalescedList& a, const CoalescedList& b) {
    return a.rule->map == Map::kSum && b.rule->map != Map::kSum;
  });
  return lists;
}

std::vector<FinalizeCall> CallsOf(const FinalizeStep& step, const FinalizeConfig& config,
                                  const Mesh& mesh, std::deque<Param>& params) {
  std::vector<FinalizeCall> calls;
  for (const CoalescedList& list : CoalescedLists(step, config, params)) {
    if (list.rule->times_inverse_tokens || list.rule->map == Map::kIdentity) continue;
    const Group group = mesh.GroupOf(list.rule->axes, list.rule->group);
    if (list.params.empty() || mesh.size(group) == 1) continue;
    calls.push_back({.label = LabelOf(step, list),
                     .group = group,
                     .params = {list.params.begin(), list.params.end()}});
  }
  return calls;
}

absl::Status RunFinalizeStep(const FinalizeStep& step, const FinalizeConfig& config,
                             const Mesh& mesh, int rank, const GroupComms* comms, double num_tokens,
                             DType main_grad_dtype, std::deque<Param>& params) {
  for (const CoalescedList& list : CoalescedLists(step, config, params)) {
    SUMONCE_RETURN_IF_ERROR(RunList(step, list, mesh, rank, comms, num_tokens, main_grad_dtype));
  }
  return absl::OkStatus();
}

State ApplyFinalizeStep(const FinalizeStep& step, const FinalizeConfig& config, const Mesh& mesh,
                        const Param& param, State state) {
  const FinalizeRule* rule = Claiming(step, param, config);
  if (!rule || rule->times_inverse_tokens)
    return state;  // 1/num_tokens: the reference's own number too
  const Group group = mesh.GroupOf(rule->axes, rule->group);
  if (!rule->divided_by.empty()) state = Apply(Scale::SizeOfGroup(Divisor(*rule, mesh), -1), state);
  return Apply({.map = rule->map}, group, state, -1);
}

}  // namespace sumonce

#include "trace/prover.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "spmd/map.h"
#include "trace/whole_numbers.h"

namespace sumonce::trace {
namespace {

// A number that is the same everywhere, up to the scale in the reference too, has any layout.
Value InLayoutOf(const Value& target, Value value) {
  if (value.kind != Kind::kUniform || value.is_zero() || target.lost()) return value;
  const Scale scale = value.state.scale;
  value = target;
  value.state.scale = scale;
  return value;
}

void AddTensors(const Call& call, std::vector<TensorRef>& refs) {
  const auto& args = call.operation().args;
  for (size_t p = 0; p < args.size(); ++p) {
    const int position = static_cast<int>(p);
    if (args[p].kind == Argument::Kind::kTensor) refs.push_back(call.ref(position));
    if (args[p].kind != Argument::Kind::kList) continue;
    for (const TensorRef& ref : call.traces().List(call.op(), position)) {
      if (ref.id >= 0) refs.push_back(ref);
    }
  }
}

bool Fits(const Call& call, std::string_view form) {
  for (size_t p = 0; p < form.size(); ++p) {
    const int position = static_cast<int>(p);
    const bool fits = form[p] == '.' || (form[p] == 't' && call.is_tensor(position)) ||
                      (form[p] == 'l' && call.is_list(position)) ||
                      (form[p] == 'n' && call.is_number(position));
    if (!fits) return false;
  }
  return true;
}

// The number of a sum, or of a list, as the ranks and sizes have it.
const char* FaultOf(const NumberRef& number) {
  if (!number.of_ranks.empty()) return kRankNumber;
  return number.value == number.twice || (number.value != number.value) ? nullptr : kSizeNumber;
}

std::optional<TensorRef> RefBefore(const Alignment& traces, std::string_view param) {
  for (const Alignment::Named& named : traces.named()) {
    if (named.kind == TensorKind::kGradBefore && named.name == param) return named.ref;
  }
  return std::nullopt;
}

bool IsMixedUse(std::string_view reason) { return reason == kMixedParts || reason == kMixedUse; }

Mesh MeshOf(int size) {
  MeshSizes sizes;
  sizes.tp = size;
  return *Mesh::Create(sizes);
}

}  // namespace

Prover::Prover(const Alignment& traces, const DeclarationTable& table)
    : traces_(traces),
      table_(table),
      mesh_(MeshOf(traces.size())),
      memory_(traces, sections_),
      whole_numbers_(NumbersBeyondWhole(traces)) {}

void Prover::Run() {
  Begin();
  for (int op = 0; op < static_cast<int>(traces_.base().ops.size()); ++op) Step(op);
  SnapshotBefore();
  memory_.set_operation(static_cast<int>(traces_.base().ops.size()) - 1);
  for (TracedGradient& gradient : gradients_)
    gradient.after = InLayoutOf(gradient.target, memory_.Read(gradient.ref));
}

std::vector<Value> Prover::RunOne(std::span<const Value> operands, int results) {
  memory_.set_operation(-1);
  for (size_t i = 0; i < operands.size(); ++i) {
    const int id = static_cast<int>(i);
    memory_.Write({.id = id, .twin = id, .of_ranks = {}}, operands[i]);
  }
  Step(0);
  std::vector<Value> values;
  for (int k = 0; k < results; ++k) values.push_back(memory_.Read(traces_.Out(0, k)));
  return values;
}

// The layout of a parameter follows from its extents: what halves from n to 2n is its shard.
Value Prover::LayoutOf(const Alignment::Named& named) {
  const Extents& shape = traces_.GeometryOf(named.ref).shape;
  const Extents& twice = traces_.TwiceOf(named.ref).shape;
  Value value = EqualValue();
  for (size_t d = 0; d < shape.size() && d < twice.size(); ++d) {
    if (shape[d] == twice[d]) continue;
    if (value.is(Layout::kShard) || named.kind != TensorKind::kParam)
      return LostValue(kExtents, -1);
    value = ShardValue({.dim = static_cast<int>(d), .outer = 1, .block = shape[d]},
                       sections_.NewStrip());
  }
  return value;
}

void Prover::Begin() {
  std::map<std::string_view, bool> trainable;
  for (const ParamInfo& param : traces_.base().params) trainable[param.name] = param.trainable;
  memory_.set_operation(-1);
  for (const Alignment::Named& named : traces_.named()) {
    if (named.kind == TensorKind::kGrad) memory_.Write(named.ref, UniformValue(0.0));
    if (named.kind == TensorKind::kGrad || named.kind == TensorKind::kGradBefore) continue;
    const Value value = LayoutOf(named);
    memory_.Write(named.ref, value);
    if (named.kind == TensorKind::kParam) targets_[std::string(named.name)] = value;
  }
  for (const Alignment::Named& named : traces_.named()) {
    const auto found = trainable.find(named.name);
    if (named.kind != TensorKind::kGrad || found == trainable.end() || !found->second) continue;
    gradients_.push_back({.param = std::string(named.name),
                          .ref = named.ref,
                          .ref_before = RefBefore(traces_, named.name),
                          .target = targets_[std::string(named.name)],
                          .before = {},
                          .after = {}});
  }
}

void Prover::SnapshotBefore() {
  if (before_taken_) return;
  before_taken_ = true;
  for (TracedGradient& gradient : gradients_) {
    const Value before = memory_.Read(gradient.ref_before.value_or(gradient.ref));
    gradient.before = InLayoutOf(gradient.target, before);
  }
}

// A keyword that a rule does not know may be what makes another function of it, as rounding_mode of
// div.
bool Prover::KeywordsKnown(const Call& call, const Declared& declared) const {
  static const auto& harmless = *new std::set<std::string_view>{
      // where a result is and in which type, which is looked at by its tensor
      "device", "dtype", "layout", "memory_format", "non_blocking", "out", "pin_memory",
      // numbers that NumberFault holds to be equal, of linear operations and bounds
      "alpha", "beta", "max", "min",
      // flags and names that all traces have alike
      "approximate", "descending", "sparse_grad", "stable"};
  const auto& own = declared.keywords;
  for (const auto& [keyword, argument] : call.operation().kwargs) {
    if (harmless.contains(keyword)) continue;
    if (std::find(own.begin(), own.end(), keyword) == own.end()) return false;
  }
  return true;
}

const char* Prover::NumberFault(const Call& call, const Declared& declared) const {
  if (whole_numbers_.contains(call.op())) return kWholeNumber;
  const Operation& operation = call.operation();
  for (size_t p = 0; p < operation.args.size(); ++p) {
    if (p < 32 && ((declared.may_vary >> p) & 1u) != 0) continue;
    const int position = static_cast<int>(p);
    if (operation.args[p].is_number()) {
      if (const char* fault = FaultOf(traces_.Number(call.op(), position))) return fault;
    }
    const auto& items = operation.args[p].items;
    for (size_t k = 0; k < items.size() && operation.args[p].kind == Argument::Kind::kList; ++k) {
      if (!items[k].is_number()) continue;
      const NumberRef number = traces_.NumberIn(call.op(), position, static_cast<int>(k));
      if (const char* fault = FaultOf(number)) return fault;
    }
  }
  for (size_t k = 0; k < operation.kwargs.size(); ++k) {
    if (!operation.kwargs[k].second.is_number()) continue;
    const NumberRef number = traces_.KeywordNumber(call.op(), static_cast<int>(k));
    if (const char* fault = FaultOf(number)) return fault;
  }
  return nullptr;
}

std::vector<TensorRef> Prover::TargetsOf(const Call& call) const {
  std::vector<TensorRef> refs;
  const Operation& operation = call.operation();
  const Declared* declared = table_.Find(BaseName(operation.name));
  if (declared != nullptr && declared->writes_first && !operation.args.empty()) {
    if (call.is_tensor(0)) return {call.ref(0)};
    if (call.is_list(0)) {
      for (const TensorRef& ref : traces_.List(call.op(), 0)) {
        if (ref.id >= 0) refs.push_back(ref);
      }
    }
    return refs;
  }
  if (!operation.writes.empty()) {
    for (size_t k = 0; k < operation.writes.size(); ++k)
      refs.push_back(traces_.Write(call.op(), static_cast<int>(k)));
  } else {
    for (int k = 0; k < call.outs(); ++k) refs.push_back(traces_.Out(call.op(), k));
  }
  return refs;
}

// What follows from a fault that no rule has looked at.
std::vector<Value> Prover::Faulty(const Call& call, const char* reason, bool collective) {
  std::vector<TensorRef> operands;
  AddTensors(call, operands);
  Value value = call.Lose(reason);
  // The fault that came in is the one to tell.
  for (const TensorRef& ref : operands) {
    const Value operand = memory_.Read(ref);
    if (operand.lost() && !collective && operand.kind == Kind::kState &&
        refusals_.contains(operand.state.lost.operation)) {
      value = operand;
      break;
    }
  }
  if (collective) {
    for (const TensorRef& ref : operands) memory_.Write(ref, value);
  }
  return std::vector<Value>(TargetsOf(call).size(), value);
}

std::vector<Value> Prover::ResultsOf(const Call& call, const Declared* declared) {
  const bool collective = call.operation().name.starts_with("c10d.");
  if (poisoned_ != nullptr)
    return std::vector<Value>(TargetsOf(call).size(), LostValue(poisoned_, poisoned_at_));
  if (declared == nullptr) return Faulty(call, kUndeclared, collective);
  if (!Fits(call, declared->form) || !declared->rule || !KeywordsKnown(call, *declared))
    return Faulty(call, kFormUndeclared, collective);
  if (const char* fault = NumberFault(call, *declared)) return Faulty(call, fault, collective);
  std::vector<Value> values = declared->rule(call);
  const size_t targets = TargetsOf(call).size();
  if (values.empty() || values.size() == targets) return values;
  return std::vector<Value>(targets, call.Lose(kFormUndeclared));
}

void Prover::Step(int op) {
  const Operation& operation = traces_.base().ops[op];
  memory_.set_operation(op);
  if (operation.phase == Phase::kFinalizer) SnapshotBefore();
  const Call call(traces_, memory_, sections_, op);
  const std::string_view name = BaseName(operation.name);
  if (name == "_local_scalar_dense") return ReadNumber(call);
  const Declared* declared = table_.Find(name);
  bool mixed = false;
  std::vector<Made> made = Take(call, declared, mixed);
  if (mixed) {
    SumTerms(call);
    summed_at_.push_back(op);
    made = Take(call, declared, mixed);
  }
  if (observer) observer(op, made);
}

// The results, written to where they belong. `mixed`: of unlike parts, and it was not noted, as
// they are to be summed.
std::vector<Prover::Made> Prover::Take(const Call& call, const Declared* declared, bool& mixed) {
  const bool view = declared != nullptr && declared->rule == nullptr && Fits(call, "t") &&
                    call.operation().writes.empty() && poisoned_ == nullptr;
  const std::vector<Value> values = view ? std::vector<Value>{} : ResultsOf(call, declared);
  const bool first = sums_mixed_ && !mixed;
  mixed = false;
  const auto note = [&](const Value& value) {
    const bool here = value.lost() && value.state.lost.operation == call.op();
    mixed |= first && here && IsMixedUse(value.state.lost.reason);
    if (!mixed) Note(value);
  };
  for (const Value& value : values) note(value);  // before an operand is written over
  const std::vector<TensorRef> targets = TargetsOf(call);
  std::vector<Made> made;
  for (size_t k = 0; k < targets.size() && !(mixed && !values.empty()); ++k) {
    if (!values.empty()) memory_.Write(targets[k], values[k]);
    // Beyond the results that both sizes have, a piece for each further rank.
    if (targets[k].twin < 0) continue;
    const Value value = memory_.Read(targets[k]);
    note(value);
    if (value.is(Layout::kShard))
      common_extent_ = std::gcd(common_extent_, value.cut.block * traces_.size());
    if (observer) made.push_back({.ref = targets[k], .value = value});
  }
  return made;
}

// The operands that are terms, summed over the ranks in place.
void Prover::SumTerms(const Call& call) {
  std::vector<TensorRef> operands;
  AddTensors(call, operands);
  for (const TensorRef& ref : operands) {
    const Value value = ref.twin < 0 ? Value() : memory_.Read(ref);
    if (value.is(Layout::kPartial))
      memory_.Write(ref, StateValue(Apply({.map = Map::kSum}, {.name = "tp", .atomic = {kAxis}},
                                          value.state, call.op())));
  }
}

// A number that Python reads goes on out of sight.
void Prover::ReadNumber(const Call& call) {
  if (!call.is_tensor(0) || poisoned_ != nullptr) return;
  const Value value = call.value(0);
  const bool known = value.is(Layout::kEqual) || value.kind == Kind::kUniform;
  if (known && value.state.scale.IsOne()) return;
  poisoned_ = value.lost() ? value.state.lost.reason : kNumberRead;
  poisoned_at_ = value.lost() ? value.state.lost.operation : call.op();
  Note(LostValue(poisoned_, poisoned_at_));
}

void Prover::Note(const Value& value) {
  const int op = value.state.lost.operation;
  if (!value.lost() || op < 0 || refusals_.contains(op)) return;
  Refusal refusal{.op = op,
                  .name = OperationName(traces_.base(), op),
                  .reason = value.state.lost.reason,
                  .operands = {}};
  refusal.mixed_use = IsMixedUse(value.state.lost.reason);
  const Call at(traces_, memory_, sections_, op);
  std::vector<TensorRef> operands;
  AddTensors(at, operands);
  std::vector<std::string> states;
  constexpr size_t kShown = 6;
  for (const TensorRef& ref : operands) {
    if (states.size() < kShown && ref.twin >= 0) states.push_back(Describe(memory_.Read(ref)));
  }
  refusal.operands = absl::StrJoin(states, "; ");
  refusals_.emplace(op, std::move(refusal));
}

}  // namespace sumonce::trace

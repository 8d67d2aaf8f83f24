#include "spmd/local_rules.h"

#include "base/status.h"

namespace sumonce {
namespace {

constexpr char kScaledNonlinear[] = "a nonlinear operand is scaled";
constexpr char kPartialNonlinear[] = "a nonlinear operand is partial: its terms are not summed yet";
constexpr char kTwoPartials[] = "a product of two partial operands";
constexpr char kPartialAndShard[] = "a partial operand meets a shard";
constexpr char kOtherDims[] = "operands are cut along different dimensions: a gather is missing";
constexpr char kCutAndWhole[] = "a dimension is cut in one operand and whole in another";
constexpr char kOtherOrder[] = "operands are cut by several axes in another order";
constexpr char kMixesCut[] = "the operation needs a whole dimension that is cut";
constexpr char kMixedOperand[] = "an operand is a mixture of shards";
constexpr char kMaximaOperand[] =
    "an operand is each rank's maximum of its slice: no all-reduce MAX yet";
constexpr char kCountedTwice[] = "an addend is counted once per rank in a partial sum";
constexpr char kAddScales[] = "addends with different factors";
constexpr char kAddLayouts[] = "addends in different layouts";
constexpr char kOff[] = "an operand's values are wrong already";

Fault First(const Fault& present, const Fault& added) { return present ? present : added; }

bool IsLinear(const Declaration& declaration, size_t i) { return (declaration.linear >> i) & 1u; }

// Along one axis: the layout of the result, or a reason why there is none.
AxisState ForwardAxis(const Declaration& declaration, std::span<const OperandState> operands, int a,
                      const char** lost) {
  int partials = 0;
  bool partial_nonlinear = false;
  DimSet why = 0;
  const AxisState* shard = nullptr;
  for (size_t i = 0; i < operands.size(); ++i) {
    const AxisState& axis = (*operands[i].value)[a];
    if (axis.layout == Layout::kMixed) *lost = kMixedOperand;
    if (axis.layout == Layout::kMaxima) *lost = kMaximaOperand;
    if (axis.layout == Layout::kPartial) {
      ++partials;
      why |= axis.why;
      partial_nonlinear |= !IsLinear(declaration, i);
    }
    if (axis.layout != Layout::kShard) continue;
    if (shard && shard->dim != axis.dim) *lost = kOtherDims;
    if (shard && shard->dim == axis.dim && shard->order != axis.order) *lost = kOtherOrder;
    shard = &axis;
  }
  if (*lost) return {};
  if (partials > 0) {
    if (shard) *lost = kPartialAndShard;
    if (partial_nonlinear) *lost = kPartialNonlinear;
    if (partials > 1) *lost = kTwoPartials;
    return Partial(why);
  }
  if (!shard) return Equal();
  for (const OperandState& operand : operands) {
    const bool cut = (*operand.value)[a].layout == Layout::kShard;
    if (!cut && Find(*operand.dims, shard->dim) >= 0) *lost = kCutAndWhole;
  }
  if (Contains(declaration.mixes, shard->dim)) *lost = kMixesCut;
  if (Contains(declaration.maxima, shard->dim)) return Maxima();
  if (Contains(declaration.sums, shard->dim)) return Partial(SetOf(shard->dim));
  return *shard;
}

// An addend that has no such dimension is the same for every slice along it.
bool SameForSlices(const OperandState& operand, const AxisState& axis, const AxisState& shard) {
  return axis.layout == Layout::kEqual && Find(*operand.dims, shard.dim) < 0;
}

// One axis of sum += addend; the scales change where an E is read as a P with equal terms.
const char* AddAxis(const OperandState& first, const OperandState& operand, int a, AxisState& x,
                    Scale& scale_sum, Scale& scale_addend) {
  const AxisState& y = (*operand.value)[a];
  if (x.layout == Layout::kMixed || y.layout == Layout::kMixed) return kMixedOperand;
  if (x.layout == Layout::kMaxima || y.layout == Layout::kMaxima) return kMaximaOperand;
  if (x.layout == Layout::kShard || y.layout == Layout::kShard) {
    if (x == y || SameForSlices(operand, y, x)) return nullptr;
    if (!SameForSlices(first, x, y)) return kAddLayouts;
    x = y;
    return nullptr;
  }
  if (x.layout == Layout::kEqual && y.layout == Layout::kEqual) return nullptr;
  if (x.layout == Layout::kEqual) scale_sum = scale_sum * Scale::SizeOfAxis(a);
  if (y.layout == Layout::kEqual) scale_addend = scale_addend * Scale::SizeOfAxis(a);
  x = Partial(x.why | y.why);
  return nullptr;
}

State Addition(const Declaration& declaration, std::span<const OperandState> operands, int num_axes,
               int operation) {
  State sum = *operands[0].value;
  for (size_t i = 1; i < operands.size(); ++i) {
    const State& addend = *operands[i].value;
    if (sum.lost) return sum;
    sum.lost = addend.lost;
    sum.off = First(sum.off, addend.off);
    Scale scale_sum = sum.scale;
    Scale scale_addend = addend.scale;
    bool read_as_partial = false;
    for (int a = 0; a < num_axes && !sum.lost; ++a) {
      read_as_partial |= sum[a].layout != addend[a].layout;
      const char* lost = AddAxis(operands[0], operands[i], a, sum[a], scale_sum, scale_addend);
      if (lost) sum.lost = {lost, operation};
    }
    sum.scale = scale_sum;
    if (!(scale_sum == scale_addend)) {
      sum.off = First(sum.off, {read_as_partial ? kCountedTwice : kAddScales, operation});
    }
  }
  for (int a = 0; a < num_axes && !sum.lost; ++a) {
    const bool cut = sum[a].layout == Layout::kShard;
    if (cut && Contains(declaration.mixes, sum[a].dim)) sum.lost = {kMixesCut, operation};
  }
  return sum;
}

// One axis of the four legal pairs (value of the result, its gradient); docs/THEORY.md "Backward".
AxisState BackwardAxis(const Declaration& declaration, std::span<const OperandState> operands,
                       const AxisState& result, const AxisState& grad, size_t i, int a,
                       const char** lost) {
  const AxisState& operand = (*operands[i].value)[a];
  const auto refuse = [&](const char* reason) {
    *lost = reason;
    return AxisState{};
  };
  if (result.layout == Layout::kShard) {
    if (grad.layout != Layout::kShard || !(grad == result))
      return refuse("the gradient of a shard is no shard of it");
    return operand.layout == Layout::kShard ? operand : Partial(SetOf(result.dim));
  }
  if (result.layout == Layout::kEqual) {
    if (grad.layout == Layout::kShard || grad.layout == Layout::kMixed) {
      return refuse("the gradient of an equal value is cut");
    }
    return grad;
  }
  if (result.layout == Layout::kMaxima)
    return refuse("the gradient of a maximum belongs to one rank only");
  // Partial results want a complete gradient: every term gets all of it.
  if (grad.layout == Layout::kPartial) {
    return refuse("the gradient of a partial value is partial: terms are missing");
  }
  if (grad.layout != Layout::kEqual) return refuse("the gradient of a partial value is cut");
  if (declaration.addition) return Equal();
  if (operand.layout == Layout::kShard) return operand;
  if (operand.layout == Layout::kPartial) return Equal();
  return Partial(result.why);
}

}  // namespace

State LocalForward(const Declaration& declaration, std::span<const OperandState> operands,
                   int num_axes, int operation) {
  if (declaration.addition) return Addition(declaration, operands, num_axes, operation);
  State result;
  for (size_t i = 0; i < operands.size(); ++i) {
    const State& operand = *operands[i].value;
    if (operand.lost) {
      result.lost = operand.lost;
      return result;
    }
    result.off = First(result.off, operand.off);
    if (IsLinear(declaration, i)) {
      result.scale = result.scale * operand.scale;
    } else if (!operand.scale.IsOne()) {
      result.off = First(result.off, {kScaledNonlinear, operation});
    }
  }
  for (int a = 0; a < num_axes; ++a) {
    const char* lost = nullptr;
    result[a] = ForwardAxis(declaration, operands, a, &lost);
    if (lost) {
      result.lost = {lost, operation};
      return result;
    }
  }
  return result;
}

State LocalBackward(const Declaration& declaration, std::span<const OperandState> operands,
                    const State& result, const State& result_grad, size_t i, int num_axes,
                    int operation) {
  State grad;
  grad.scale = result_grad.scale;
  grad.off = result_grad.off;
  const auto lose = [&](const Fault& fault) {
    grad.lost = fault;
    return grad;
  };
  if (result_grad.lost) return lose(result_grad.lost);
  if (result.lost) return lose(result.lost);
  for (size_t j = 0; j < operands.size() && !declaration.addition; ++j) {
    const State& other = *operands[j].value;
    const bool linear = IsLinear(declaration, j);
    if (j == i && linear) continue;  // the derivative does not read a linear operand itself
    if (other.lost) return lose(other.lost);
    if (other.off) return lose({kOff, other.off.operation});
    if (!linear && !other.scale.IsOne()) return lose({kScaledNonlinear, operation});
    if (linear) grad.scale = grad.scale * other.scale;
  }
  for (int a = 0; a < num_axes; ++a) {
    const char* lost = nullptr;
    grad[a] = BackwardAxis(declaration, operands, result[a], result_grad[a], i, a, &lost);
    if (lost) return lose({lost, operation});
  }
  return grad;
}

}  // namespace sumonce

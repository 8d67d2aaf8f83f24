#include "spmd/ops/take_range.h"

#include "spmd/ops/extents.h"
#include "spmd/ops/shape.h"

namespace sumonce {
namespace {

// Calls row(from, to, count) with the offsets of each run of entries in the whole and in the range.
template <typename Row>
void ForEachRange(const Dims& whole, const TakeRangeOptions& options, Row row) {
  const int position = Find(whole, options.dim);
  const auto [outer, inner] = ExtentsAround(whole, position);
  const int64_t extent = whole[position].extent(), count = options.count * inner;
  for (int64_t o = 0; o < outer; ++o) {
    row((o * extent + options.first) * inner, o * count, count);
  }
}

}  // namespace

absl::StatusOr<Declaration> TakeRangeOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 1);
  const Dims& x = operands[0];
  const int position = Find(x, options_.dim);
  const bool entries = position >= 0 && x[position].plain() && x[position].width() == 1 &&
                       options_.first >= 0 && options_.count > 0 &&
                       options_.first + options_.count <= x[position].units;
  if (!entries || (options_.as != options_.dim && Find(x, options_.as) >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("TakeRange: x ", Describe(x), " has no entries ", options_.first, "..",
                     options_.first + options_.count - 1, " of ", ToAbsl(Name(options_.dim)),
                     " to be called ", ToAbsl(Name(options_.as))));
  }
  Declaration declaration{.result = x, .linear = Linear(0), .mixes = SetOf(options_.dim)};
  declaration.result[position] = Plain(options_.as, options_.count);
  return declaration;
}

void TakeRangeOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  ForEachRange(in[0].dims(), options_, [&](int64_t from, int64_t to, int64_t count) {
    std::copy_n(in[0].data() + from, count, out.data() + to);
  });
}

void TakeRangeOperation::Backward(std::span<const Tensor> in, const Tensor&, const Tensor& grad_out,
                                  std::span<Tensor> grad_in) const {
  if (grad_in[0].empty()) return;
  ForEachRange(in[0].dims(), options_, [&](int64_t from, int64_t to, int64_t count) {
    std::copy_n(grad_out.data() + to, count, grad_in[0].data() + from);
  });
}

Value TakeRange(Tape& tape, Value x, TakeRangeOptions options) {
  return tape.Run(std::make_shared<TakeRangeOperation>(options), {x});
}

void RegisterTakeRange(OperationRegistry& registry) {
  const DimExtent s = Plain(Dim::kSequence, 6), l = Plain(Dim::kLatent, 6),
                  h = Plain(Dim::kHidden, 6);
  const auto take = [](int64_t first, int64_t count, Dim as) {
    return std::make_shared<TakeRangeOperation>(
        TakeRangeOptions{.dim = Dim::kLatent, .first = first, .count = count, .as = as});
  };
  registry.Add("TakeRange", {{take(0, 4, Dim::kLatent), {{s, l}}, {}, true},
                             {take(4, 2, Dim::kHeadDim), {{s, l}}, {}, true},
                             {take(1, 3, Dim::kHeadDim), {{s, l, h}}, {}, true}});
}

}  // namespace sumonce

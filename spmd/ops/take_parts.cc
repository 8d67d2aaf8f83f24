#include "spmd/ops/take_parts.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "spmd/ops/extents.h"

namespace sumonce {
namespace {

// Calls row(from, to) with the offsets of each row of the inner extent, in `whole` and in `taken`,
// which has parts first.. of it.
template <typename Row>
void ForEachRow(const Dims& whole, const Dims& taken, const TakePartsOptions& options, Row row) {
  const int position = Find(whole, options.dim);
  const DimExtent& from = whole[position];
  const DimExtent& to = taken[position];
  const auto [outer, inner] = ExtentsAround(whole, position);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t unit = 0; unit < from.units; ++unit) {
      for (int part = 0; part < options.count; ++part) {
        for (int64_t i = 0; i < to.parts[part]; ++i) {
          row((o * from.extent() + from.Index(unit, options.first + part, i)) * inner,
              (o * to.extent() + to.Index(unit, part, i)) * inner, inner);
        }
      }
    }
  }
}

}  // namespace

absl::StatusOr<Declaration> TakePartsOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 1);
  const int position = Find(operands[0], options_.dim);
  const int end = options_.first + options_.count;
  if (position < 0 || options_.first < 0 || options_.count < 1 ||
      end > static_cast<int>(operands[0][position].parts.size())) {
    return absl::InvalidArgumentError(absl::StrCat("TakeParts: x ", Describe(operands[0]),
                                                   " has no parts ", options_.first, "..", end - 1,
                                                   " of ", ToAbsl(Name(options_.dim))));
  }
  Declaration declaration;
  declaration.result = operands[0];
  DimExtent& taken = declaration.result[position];
  taken.parts.erase(taken.parts.begin() + end, taken.parts.end());
  taken.parts.erase(taken.parts.begin(), taken.parts.begin() + options_.first);
  if (taken.plain()) taken.packing = Packing::kUnitMajor;  // one part: the packings are the same
  declaration.linear = Linear(0);
  return declaration;
}

void TakePartsOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  ForEachRow(in[0].dims(), out.dims(), options_, [&](int64_t from, int64_t to, int64_t count) {
    std::copy_n(in[0].data() + from, count, out.data() + to);
  });
}

void TakePartsOperation::Backward(std::span<const Tensor> in, const Tensor& out,
                                  const Tensor& grad_out, std::span<Tensor> grad_in) const {
  if (grad_in[0].empty()) return;
  ForEachRow(in[0].dims(), out.dims(), options_, [&](int64_t from, int64_t to, int64_t count) {
    std::copy_n(grad_out.data() + to, count, grad_in[0].data() + from);
  });
}

Value TakeParts(Tape& tape, Value x, TakePartsOptions options) {
  return tape.Run(std::make_shared<TakePartsOperation>(options), {x});
}

absl::StatusOr<Declaration> PlacePartsOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 1);
  const DimExtent& into = options_.into;
  const int position = Find(operands[0], into.dim);
  const size_t count = position < 0 ? 0 : operands[0][position].parts.size();
  const auto first = into.parts.begin() + options_.first;
  const bool fits = count > 0 && options_.first >= 0 &&
                    options_.first + count <= into.parts.size() &&
                    std::equal(first, first + count, operands[0][position].parts.begin());
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat("PlaceParts: x ", Describe(operands[0]),
                                                   " does not have the parts from ", options_.first,
                                                   " on of ", Describe(Dims{into})));
  }
  Declaration declaration{.result = operands[0], .linear = Linear(0)};
  declaration.result[position].parts = into.parts;
  declaration.result[position].packing = into.packing;
  return declaration;
}

void PlacePartsOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  ForEachRow(out.dims(), in[0].dims(), TakenFrom(in[0].dims()),
             [&](int64_t to, int64_t from, int64_t count) {
               std::copy_n(in[0].data() + from, count, out.data() + to);
             });
}

void PlacePartsOperation::Backward(std::span<const Tensor> in, const Tensor& out,
                                   const Tensor& grad_out, std::span<Tensor> grad_in) const {
  if (grad_in[0].empty()) return;
  ForEachRow(out.dims(), in[0].dims(), TakenFrom(in[0].dims()),
             [&](int64_t from, int64_t to, int64_t count) {
               std::copy_n(grad_out.data() + from, count, grad_in[0].data() + to);
             });
}

// What TakeParts would take of the result.
TakePartsOptions PlacePartsOperation::TakenFrom(const Dims& x) const {
  const DimExtent& own = x[Find(x, options_.into.dim)];
  return {.dim = own.dim, .first = options_.first, .count = static_cast<int>(own.parts.size())};
}

Value PlaceParts(Tape& tape, Value x, PlacePartsOptions options) {
  return tape.Run(std::make_shared<PlacePartsOperation>(std::move(options)), {x});
}

void RegisterTakeParts(OperationRegistry& registry) {
  const DimExtent s = Plain(Dim::kSequence, 6), h = Plain(Dim::kHidden, 2);
  const DimExtent unit_major = {Dim::kGroup, 6, {2, 1, 3}, Packing::kUnitMajor};
  const DimExtent part_major = {Dim::kGroup, 6, {2, 1, 3}, Packing::kPartMajor};
  const auto take = [](int first, int count) {
    return std::make_shared<TakePartsOperation>(TakePartsOptions{Dim::kGroup, first, count});
  };
  registry.Add("TakeParts", {{take(0, 1), {{s, unit_major}}, {}, true},
                             {take(1, 2), {{s, unit_major, h}}, {}, true},
                             {take(0, 2), {{s, part_major}}, {}, true},
                             {take(2, 1), {{s, part_major, h}}, {}, true}});
  const auto place = [](const DimExtent& into, int first) {
    return std::make_shared<PlacePartsOperation>(PlacePartsOptions{.into = into, .first = first});
  };
  const DimExtent last = {Dim::kGroup, 6, {3}, Packing::kUnitMajor};
  const DimExtent two = {Dim::kGroup, 6, {2, 1}, Packing::kPartMajor};
  registry.Add("PlaceParts", {{place(unit_major, 2), {{s, last}}, {}, true},
                              {place(part_major, 0), {{s, two, h}}, {}, true}});
}

}  // namespace sumonce

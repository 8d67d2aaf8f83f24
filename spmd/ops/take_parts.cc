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

namespace {

// Visits each operand with what TakeParts would take of the whole to get it.
template <typename Visit>
void ForEachPart(std::span<const Tensor> parts, Dim dim, Visit visit) {
  int first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Dims& dims = parts[i].dims();
    const int count = static_cast<int>(dims[Find(dims, dim)].parts.size());
    visit(i, TakePartsOptions{.dim = dim, .first = first, .count = count});
    first += count;
  }
}

}  // namespace

absl::StatusOr<Declaration> JoinPartsOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(!operands.empty());
  const int position = Find(operands[0], into_.dim);
  DimExtent joined = into_;
  joined.parts.clear();
  bool alike = position >= 0;
  for (const Dims& part : operands) {
    alike = alike && Find(part, into_.dim) == position && part.size() == operands[0].size();
    if (!alike) break;
    joined.units = part[position].units;
    joined.parts.insert(joined.parts.end(), part[position].parts.begin(),
                        part[position].parts.end());
    Dims same = part;
    same[position] = operands[0][position];
    alike = same == operands[0] && joined.units == operands[0][position].units;
  }
  if (!alike || joined.parts != into_.parts) {
    std::string found;
    for (const Dims& part : operands) absl::StrAppend(&found, " ", Describe(part));
    return absl::InvalidArgumentError(
        absl::StrCat("JoinParts: the parts", found, " do not make up ", Describe(Dims{into_})));
  }
  Declaration declaration{.result = operands[0], .addition = true};
  declaration.result[position] = joined;
  return declaration;
}

void JoinPartsOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  ForEachPart(in, into_.dim, [&](size_t i, const TakePartsOptions& taken) {
    ForEachRow(out.dims(), in[i].dims(), taken, [&](int64_t to, int64_t from, int64_t count) {
      std::copy_n(in[i].data() + from, count, out.data() + to);
    });
  });
}

void JoinPartsOperation::Backward(std::span<const Tensor> in, const Tensor& out,
                                  const Tensor& grad_out, std::span<Tensor> grad_in) const {
  ForEachPart(in, into_.dim, [&](size_t i, const TakePartsOptions& taken) {
    if (grad_in[i].empty()) return;
    ForEachRow(out.dims(), in[i].dims(), taken, [&](int64_t from, int64_t to, int64_t count) {
      std::copy_n(grad_out.data() + from, count, grad_in[i].data() + to);
    });
  });
}

Value JoinParts(Tape& tape, std::vector<Value> parts, DimExtent into) {
  return tape.Run(std::make_shared<JoinPartsOperation>(std::move(into)), std::move(parts));
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
  const auto join = [](const DimExtent& into) {
    return std::make_shared<JoinPartsOperation>(into);
  };
  const DimExtent two = {Dim::kGroup, 6, {2, 1}, Packing::kUnitMajor};
  const DimExtent last = {Dim::kGroup, 6, {3}, Packing::kUnitMajor};
  const DimExtent first = {Dim::kGroup, 6, {2}, Packing::kUnitMajor};
  const DimExtent others = {Dim::kGroup, 6, {1, 3}, Packing::kPartMajor};
  registry.Add("JoinParts", {{join(unit_major), {{s, two}, {s, last}}, {}, true},
                             {join(part_major), {{s, first, h}, {s, others, h}}, {}, true}});
}

}  // namespace sumonce

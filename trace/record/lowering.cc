#include "trace/record/lowering.h"

#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/digest.h"
#include "base/status.h"
#include "spmd/ops/concat.h"
#include "spmd/ops/dot.h"
#include "spmd/ops/gated_norm.h"
#include "spmd/ops/l2_norm.h"
#include "spmd/ops/rms_norm.h"
#include "spmd/ops/rope.h"
#include "spmd/ops/scale_by.h"
#include "spmd/ops/take_parts.h"
#include "spmd/ops/take_range.h"
#include "trace/record/lowering_mixers.h"

namespace sumonce::trace::record {
namespace {

template <typename Type>
const auto& OptionsOf(const Application& application) {
  return static_cast<const Type*>(application.operation)->options();
}

Extents ResultShape(const Application& at) { return ShapeOf(at.declaration->result); }

// x [..., k...], weight [n..., k...] or [k..., n...]: x weight^T, or x weight.
int LowerLinear(Graph& graph, const Application& at) {
  Dims shared;
  for (const DimExtent& dim : at.dims[1]) {
    if (sumonce::Find(at.dims[0], dim.dim) >= 0) shared.push_back(dim);
  }
  const bool trailing = at.dims[1].back().dim == shared.back().dim;
  const int64_t k = sumonce::Count(shared), n = sumonce::Count(at.dims[1]) / k;
  const int x = graph.View(at.operands[0], {sumonce::Count(at.dims[0]) / k, k});
  const int weight = trailing ? graph.Permute(graph.View(at.operands[1], {n, k}), {1, 0})
                              : graph.View(at.operands[1], {k, n});
  return graph.View(graph.MatMul(x, weight), ResultShape(at));
}

// b repeated along the leading dimensions of a.
int LowerAddBias(Graph& graph, const Application& at) {
  return graph.Add(at.operands[0], at.operands[1]);
}
int LowerAdd(Graph& graph, const Application& at) {
  return graph.Add(at.operands[0], at.operands[1]);
}
int LowerSubtract(Graph& graph, const Application& at) {
  return graph.Subtract(at.operands[0], at.operands[1]);
}

int LowerProduct(Graph& graph, const Application& at) {
  return graph.Multiply(at.operands[0], at.operands[1]);
}

int LowerDot(Graph& graph, const Application& at) {
  std::vector<int> over;
  for (size_t d = 0; d < at.dims[0].size(); ++d) {
    if (Contains(at.declaration->sums, at.dims[0][d].dim)) over.push_back(static_cast<int>(d));
  }
  return graph.Sum(graph.Multiply(at.operands[0], at.operands[1]), over, false);
}

// x / sqrt(mean of squares over `dims` + eps).
int Normalised(Graph& graph, int x, const std::vector<int>& dims, double eps) {
  const int mean = graph.Mean(graph.Square(x), dims);
  return graph.Multiply(x, graph.Apply(Function::kRsqrt, graph.Plus(mean, eps)));
}

int LowerRmsNorm(Graph& graph, const Application& at) {
  const RmsNormOptions& options = OptionsOf<RmsNormOperation>(at);
  std::vector<int> dims;
  for (size_t d = at.dims[0].size() - at.dims[1].size(); d < at.dims[0].size(); ++d)
    dims.push_back(static_cast<int>(d));
  const int weight = options.zero_centered ? graph.Plus(at.operands[1], 1) : at.operands[1];
  return graph.Multiply(Normalised(graph, at.operands[0], dims, options.eps), weight);
}

int LastOf(const Application& at) { return static_cast<int>(at.dims[0].size()) - 1; }

int LowerL2Norm(Graph& graph, const Application& at) {
  const int sum = graph.Sum(graph.Square(at.operands[0]), {LastOf(at)}, true);
  const int root = graph.Plus(sum, OptionsOf<L2NormOperation>(at).eps);
  return graph.Multiply(at.operands[0], graph.Apply(Function::kRsqrt, root));
}

// weight * o / rms(o) * silu(z).
int LowerGatedNorm(Graph& graph, const Application& at) {
  const double eps = OptionsOf<GatedNormOperation>(at).eps;
  const int normed = Normalised(graph, at.operands[0], {LastOf(at)}, eps);
  return graph.Multiply(graph.Multiply(normed, at.operands[2]),
                        graph.Apply(Function::kSilu, at.operands[1]));
}

// -exp(A_log) * softplus(a + dt_bias).
int LowerGdnDecay(Graph& graph, const Application& at) {
  const int rate = graph.Times(graph.Apply(Function::kExp, at.operands[1]), -1);
  const int step = graph.Apply(Function::kSoftplus, graph.Add(at.operands[0], at.operands[2]));
  return graph.Multiply(step, rate);
}

// A gate of every entry, or one for the last dimension.
int LowerSigmoidGate(Graph& graph, const Application& at) {
  Extents gate = ShapeOf(at.dims[1]);
  if (gate.size() < at.dims[0].size()) gate.push_back(1);
  const int open = graph.View(graph.Apply(Function::kSigmoid, at.operands[1]), gate);
  return graph.Multiply(at.operands[0], open);
}
int LowerLog(Graph& graph, const Application& at) {
  return graph.Apply(Function::kLog, at.operands[0]);
}
int LowerSigmoid(Graph& graph, const Application& at) {
  return graph.Apply(Function::kSigmoid, at.operands[0]);
}
int LowerSilu(Graph& graph, const Application& at) {
  return graph.Apply(Function::kSilu, at.operands[0]);
}
int LowerGelu(Graph& graph, const Application& at) {
  return graph.Apply(Function::kGelu, at.operands[0]);
}
int LowerSquaredRelu(Graph& graph, const Application& at) {
  return graph.Square(graph.Apply(Function::kRelu, at.operands[0]));
}
int LowerMaxOver(Graph& graph, const Application& at) { return graph.Maximum(at.operands[0]); }
int LowerSumExp(Graph& graph, const Application& at) {
  return graph.Sum(graph.Apply(Function::kExp, at.operands[0]), {LastOf(at)}, false);
}
int LowerScaleBy(Graph& graph, const Application& at) {
  return graph.Times(at.operands[0], static_cast<const ScaleByOperation*>(at.operation)->factor());
}

// x - m, m repeated along the last dimension of x.
int LowerShift(Graph& graph, const Application& at) {
  Extents column = ShapeOf(at.dims[1]);
  column.push_back(1);
  return graph.Subtract(at.operands[0], graph.View(at.operands[1], column));
}

int LowerUnfold(Graph& graph, const Application& at) {
  return graph.View(at.operands[0], ResultShape(at));
}

// Parts first .. first + count of each unit of dimension `position`.
int Taken(Graph& graph, int x, const Dims& dims, int position, int first, int count) {
  const DimExtent& fused = dims[position];
  int64_t before = 0, width = 0;
  for (int part = 0; part < first + count; ++part)
    (part < first ? before : width) += fused.parts[part];
  if (fused.packing == Packing::kPartMajor || fused.plain()) {
    return graph.Slice(x, position, before * fused.units, (before + width) * fused.units);
  }
  Extents units = ShapeOf(dims), taken = units;
  units[position] = fused.units;
  units.insert(units.begin() + position + 1, fused.width());
  taken[position] = fused.units * width;
  return graph.View(graph.Slice(graph.View(x, units), position + 1, before, before + width), taken);
}

int LowerTakeParts(Graph& graph, const Application& at) {
  const TakePartsOptions& options = OptionsOf<TakePartsOperation>(at);
  const int position = sumonce::Find(at.dims[0], options.dim);
  return Taken(graph, at.operands[0], at.dims[0], position, options.first, options.count);
}

// Zeros in front of the parts and behind them.
int LowerPlaceParts(Graph& graph, const Application& at) {
  const PlacePartsOptions& options = OptionsOf<PlacePartsOperation>(at);
  const int position = sumonce::Find(at.dims[0], options.into.dim);
  const DimExtent& own = at.dims[0][position];
  int64_t before = 0;
  for (int part = 0; part < options.first; ++part) before += options.into.parts[part];
  const int64_t behind = options.into.width() - before - own.width();
  const bool by_parts = options.into.packing == Packing::kPartMajor;
  Extents units = ShapeOf(at.dims[0]);
  if (!by_parts) {
    units[position] = own.units;
    units.insert(units.begin() + position + 1, own.width());
  }
  const int along = by_parts ? position : position + 1;
  const auto zeros = [&](int64_t width) {
    Extents shape = units;
    shape[along] = by_parts ? width * own.units : width;
    return graph.Call("aten.zeros", {OfExtents(shape)}, shape);
  };
  std::vector<int> blocks;
  if (before > 0) blocks.push_back(zeros(before));
  blocks.push_back(graph.View(at.operands[0], units));
  if (behind > 0) blocks.push_back(zeros(behind));
  return graph.View(blocks.size() == 1 ? blocks[0] : graph.Cat(blocks, along), ResultShape(at));
}

int LowerTakeRange(Graph& graph, const Application& at) {
  const TakeRangeOptions& options = OptionsOf<TakeRangeOperation>(at);
  const int position = sumonce::Find(at.dims[0], options.dim);
  return graph.Slice(at.operands[0], position, options.first, options.first + options.count);
}

// a and b side by side, b repeated along the dimensions that it lacks.
int LowerConcat(Graph& graph, const Application& at) {
  const Dim dim = static_cast<const ConcatOperation*>(at.operation)->dim();
  const int position = sumonce::Find(at.dims[0], dim);
  Extents repeated = ShapeOf(at.dims[0]), once = repeated;
  repeated[position] = once[position] = at.dims[1][sumonce::Find(at.dims[1], dim)].extent();
  for (int d = 0; d < position; ++d) {
    if (sumonce::Find(at.dims[1], at.dims[0][d].dim) < 0) once[d] = 1;
  }
  const int b = graph.Expand(graph.View(at.operands[1], once), repeated);
  return graph.Cat({at.operands[0], b}, position);
}

int LowerSwiglu(Graph& graph, const Application& at) {
  int position = 0;
  while (at.dims[0][position] == at.declaration->result[position]) ++position;
  const int gate = Taken(graph, at.operands[0], at.dims[0], position, 0, 1);
  const int up = Taken(graph, at.operands[0], at.dims[0], position, 1, 1);
  return graph.Multiply(graph.Apply(Function::kSilu, gate), up);
}

// [s, ..., d]: the first entries of a head turned in pairs by tables [s, 1, ..., rotary_dim].
int LowerRope(Graph& graph, const Application& at) {
  const RopeOptions& options = OptionsOf<RopeOperation>(at);
  const int x = at.operands[0], last = LastOf(at);
  const int64_t half = options.rotary_dim / 2, width = at.dims[0].back().extent();
  Extents table(at.dims[0].size(), 1);
  table[0] = at.dims[0][0].extent();
  table.back() = options.rotary_dim;
  const auto tables = [&](const char* name, const std::vector<double>& given) {
    Digest digest;
    digest.Add(name);
    digest.Add(options.rotary_dim);
    digest.Add(table[0]);
    digest.Add(std::span<const double>(&options.base, 1));
    digest.Add(given);
    return graph.Outside(table, digest.Hex());
  };
  const int cos = tables("cos", options.cos), sin = tables("sin", options.sin);
  int rotary = graph.Slice(x, last, 0, 2 * half);
  if (options.interleaved) {  // pairs [.., half, 2] as [firsts | seconds]
    Extents pairs = graph.shape(rotary);
    pairs.back() = half;
    pairs.push_back(2);
    const int apart = graph.View(rotary, pairs);
    rotary = graph.Cat({graph.Select(apart, last + 1, 0), graph.Select(apart, last + 1, 1)}, last);
  }
  const int first = graph.Slice(rotary, last, 0, half);
  const int second = graph.Slice(rotary, last, half, 2 * half);
  const int turned = graph.Cat({graph.Times(second, -1), first}, last);
  const int rotated = graph.Add(graph.Multiply(rotary, cos), graph.Multiply(turned, sin));
  if (2 * half == width) return rotated;
  return graph.Cat({rotated, graph.Slice(x, last, 2 * half, width)}, last);
}

using Lowering = int (*)(Graph& graph, const Application& at);

const std::map<std::string_view, Lowering>& Lowerings() {
  static const auto& table = *new std::map<std::string_view, Lowering>{
      {"Add", LowerAdd},
      {"AddBias", LowerAddBias},
      {"Attention", LowerAttention},
      {"CausalConv", LowerCausalConv},
      {"Concat", LowerConcat},
      {"DeltaRule", LowerDeltaRule},
      {"Dot", LowerDot},
      {"GatedNorm", LowerGatedNorm},
      {"GdnDecay", LowerGdnDecay},
      {"Gelu", LowerGelu},
      {"GeluTanh", LowerGelu},
      {"L2Norm", LowerL2Norm},
      {"Linear", LowerLinear},
      {"Log", LowerLog},
      {"MaxOver", LowerMaxOver},
      {"PlaceParts", LowerPlaceParts},
      {"Product", LowerProduct},
      {"Regroup", LowerUnfold},
      {"RmsNorm", LowerRmsNorm},
      {"Rope", LowerRope},
      {"ScaleBy", LowerScaleBy},
      {"Shift", LowerShift},
      {"Sigmoid", LowerSigmoid},
      {"SigmoidGate", LowerSigmoidGate},
      {"Silu", LowerSilu},
      {"SquaredRelu", LowerSquaredRelu},
      {"Subtract", LowerSubtract},
      {"SumExp", LowerSumExp},
      {"Swiglu", LowerSwiglu},
      {"TakeParts", LowerTakeParts},
      {"TakeRange", LowerTakeRange},
      {"Unfold", LowerUnfold},
  };
  return table;
}

}  // namespace

Extents ShapeOf(const Dims& dims) {
  Extents shape;
  for (const DimExtent& dim : dims) shape.push_back(dim.extent());
  return shape;
}

int Lower(Graph& graph, const Application& application) {
  const auto found = Lowerings().find(application.operation->name());
  if (found != Lowerings().end()) return found->second(graph, application);
  if (graph.failure.empty()) {
    graph.failure = absl::StrCat("the operation ", ToAbsl(application.operation->name()),
                                 " has no aten form here");
  }
  return graph.Made(ResultShape(application));
}

}  // namespace sumonce::trace::record

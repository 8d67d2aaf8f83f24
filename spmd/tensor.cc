#include "spmd/tensor.h"

#include <algorithm>

#include "base/status.h"

namespace sumonce {
namespace {

// A tensor seen as [outer, extent of one dimension, inner].
struct Split3 {
  int64_t outer = 1;
  int64_t inner = 1;
};

Split3 Around(const Dims& dims, int position) {
  Split3 split;
  for (int i = 0; i < position; ++i) split.outer *= dims[i].extent();
  for (size_t i = position + 1; i < dims.size(); ++i) split.inner *= dims[i].extent();
  return split;
}

// Calls copy(offset in the whole, offset in the block, elements) for every run of block `index` of
// `blocks`.
template <typename Copy>
void ForEachRun(const Dims& whole, int position, int index, int blocks, Copy copy) {
  const DimExtent& extent = whole[position];
  SUMONCE_CHECK(extent.units % blocks == 0)
      << Describe(whole) << " cannot be cut into " << blocks << " along " << Name(extent.dim);
  DimExtent block = extent;
  block.units = extent.units / blocks;
  const Split3 around = Around(whole, position);
  const int64_t first = index * block.units;
  for (int64_t outer = 0; outer < around.outer; ++outer) {
    const int64_t whole_base = outer * extent.extent();
    const int64_t block_base = outer * block.extent();
    if (extent.packing == Packing::kUnitMajor) {
      copy((whole_base + extent.Index(first, 0, 0)) * around.inner, block_base * around.inner,
           block.extent() * around.inner);
      continue;
    }
    for (size_t part = 0; part < extent.parts.size(); ++part) {
      copy((whole_base + extent.Index(first, part, 0)) * around.inner,
           (block_base + block.Index(0, part, 0)) * around.inner,
           block.units * extent.parts[part] * around.inner);
    }
  }
}

int Position(const Tensor& tensor, Dim dim) {
  const int position = Find(tensor.dims(), dim);
  SUMONCE_CHECK(position >= 0) << Describe(tensor.dims()) << " has no dimension " << Name(dim);
  return position;
}

}  // namespace

Tensor::Tensor(Dims dims)
    : dims_(std::move(dims)), data_(std::make_shared<std::vector<double>>(Count(dims_), 0.0)) {}

Tensor::Tensor(Dims dims, std::vector<double> values)
    : dims_(std::move(dims)), data_(std::make_shared<std::vector<double>>(std::move(values))) {
  SUMONCE_CHECK(count() == Count(dims_)) << count() << " values for " << Describe(dims_);
}

Tensor Tensor::Clone() const {
  if (empty()) return {};
  return Tensor(dims_, *data_);
}

Tensor Tensor::WithDims(Dims dims) const {
  SUMONCE_CHECK(Count(dims) == count()) << Describe(dims_) << " as " << Describe(dims);
  Tensor result = *this;
  result.dims_ = std::move(dims);
  return result;
}

void AddInto(Tensor& sum, const Tensor& term) {
  SUMONCE_CHECK(sum.count() == term.count())
      << Describe(sum.dims()) << " + " << Describe(term.dims());
  double* to = sum.data();
  const double* from = term.data();
  for (int64_t i = 0; i < sum.count(); ++i) to[i] += from[i];
}

void ScaleInto(Tensor& tensor, double factor) {
  double* values = tensor.data();
  for (int64_t i = 0; i < tensor.count(); ++i) values[i] *= factor;
}

Tensor SliceUnits(const Tensor& whole, Dim dim, int index, int blocks) {
  const int position = Position(whole, dim);
  Dims dims = whole.dims();
  dims[position].units /= blocks;
  Tensor block(dims);
  ForEachRun(whole.dims(), position, index, blocks, [&](int64_t from, int64_t to, int64_t n) {
    std::copy_n(whole.data() + from, n, block.data() + to);
  });
  return block;
}

Tensor JoinUnits(std::span<const Tensor> blocks, Dim dim) {
  SUMONCE_CHECK(!blocks.empty());
  const int position = Position(blocks[0], dim);
  Dims dims = blocks[0].dims();
  dims[position].units *= static_cast<int64_t>(blocks.size());
  Tensor whole(dims);
  for (size_t index = 0; index < blocks.size(); ++index) {
    SUMONCE_CHECK(blocks[index].count() == blocks[0].count()) << "blocks of different sizes";
    ForEachRun(dims, position, static_cast<int>(index), static_cast<int>(blocks.size()),
               [&](int64_t to, int64_t from, int64_t n) {
                 std::copy_n(blocks[index].data() + from, n, whole.data() + to);
               });
  }
  return whole;
}

Tensor PadUnits(const Tensor& block, Dim dim, int index, int blocks) {
  const int position = Position(block, dim);
  Dims dims = block.dims();
  dims[position].units *= blocks;
  Tensor whole(dims);
  ForEachRun(dims, position, index, blocks, [&](int64_t to, int64_t from, int64_t n) {
    std::copy_n(block.data() + from, n, whole.data() + to);
  });
  return whole;
}

}  // namespace sumonce

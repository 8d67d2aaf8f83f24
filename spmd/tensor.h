// An array of float64 with named dimensions, row-major. Copies share the elements (a handle, as in
// array libraries); operations never write into their operands. Not for concurrent writing.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "spmd/dim.h"

namespace sumonce {

class Tensor {
 public:
  Tensor() = default;                             // empty: no value
  explicit Tensor(Dims dims);                     // zeros
  Tensor(Dims dims, std::vector<double> values);  // values.size() == Count(dims), checked

  bool empty() const { return data_ == nullptr; }
  const Dims& dims() const { return dims_; }
  int64_t count() const { return data_ ? static_cast<int64_t>(data_->size()) : 0; }
  const double* data() const { return data_->data(); }
  double* data() { return data_->data(); }
  std::span<const double> values() const {
    return data_ ? std::span<const double>(*data_) : std::span<const double>();
  }

  Tensor Clone() const;              // own elements
  Tensor WithDims(Dims dims) const;  // same elements under other names; counts are checked

 private:
  Dims dims_;
  std::shared_ptr<std::vector<double>> data_;
};

void AddInto(Tensor& sum, const Tensor& term);  // sum += term; same extents, checked
void ScaleInto(Tensor& tensor, double factor);

// Block `index` of `blocks` equal blocks of units along `dim` (every part of each unit), and its
// inverse forms.
Tensor SliceUnits(const Tensor& whole, Dim dim, int index, int blocks);
Tensor JoinUnits(std::span<const Tensor> blocks, Dim dim);
Tensor PadUnits(const Tensor& block, Dim dim, int index,
                int blocks);  // the block in its place, zeros elsewhere

}  // namespace sumonce

// Golden vectors (tests/data/golden/README.md) as tensors with named dimensions, and the comparison
// with them.
//
//   const Golden golden("l2norm");
//   const Dims dims = {Plain(Dim::kSequence, 7), Plain(Dim::kBatch, 2), Plain(Dim::kHidden, 16)};
//   const Tensor x = golden.Get("in.x", dims, kSequenceFirst);
//   EXPECT_TRUE(golden.Matches(y, "out.y", kSequenceFirst));
//
// With SUMONCE_GOLDEN_LOG set, every tensor that is read is noted there, a line "read file tensor",
// and what something is compared with once more, "compared file tensor": the walk over all files
// (tests/golden_walk_test.sh) asks which were not.
//
// Files hold float64 in [batch, time, ...]; operations here hold [s, b, ...]: hence the axes.
#pragma once

#include <string>
#include <vector>

#include "base/safetensors.h"
#include "gtest/gtest.h"
#include "spmd/sequences.h"
#include "spmd/tensor.h"

namespace sumonce::testing {

// Axis i of the tensor is axis `axes[i]` of the file; axes beyond the list keep their place.
using Axes = std::vector<int>;
inline const Axes kAsStored = {};
inline const Axes kSequenceFirst = {1, 0};  // [batch, time, ...] read as [s, b, ...]

// Every entry within `tolerance` times the largest expected entry. A failure gives the count of
// mismatched entries and the greatest absolute and relative differences with their indices. NaN
// matches nothing.
::testing::AssertionResult AllClose(const Tensor& actual, const Tensor& expected,
                                    double tolerance = 1e-12);

class Golden {
 public:
  // `name` without suffix: "gdr_recurrent_gqa". A file that is absent or broken is a failed check.
  explicit Golden(const std::string& name);

  bool Has(const std::string& name) const { return reader_.tensors().contains(name); }
  const std::vector<int64_t>& Shape(const std::string& name) const;  // as stored
  const std::string& Meta(const std::string& key) const;

  // The tensor under our dimensions. `dims` may split axes of the file (12 value heads as [k=6,
  // j=2]) or join them; what is checked is the count. `axes` refers to the axes after that split.
  Tensor Get(const std::string& name, const Dims& dims, const Axes& axes = kAsStored) const;
  // The same, to be compared with by the caller.
  Tensor Expected(const std::string& name, const Dims& dims, const Axes& axes = kAsStored) const;

  ::testing::AssertionResult Matches(const Tensor& actual, const std::string& name,
                                     const Axes& axes = kAsStored, double tolerance = 1e-12) const;

 private:
  std::vector<double> Read(const std::string& name) const;
  void Note(const char* what, const std::string& name) const;

  std::string name_;
  SafetensorsReader reader_;
};

// Where the packed sequences of a file begin: in.cu_seqlens without the end.
SequenceStarts Starts(const Golden& golden);

}  // namespace sumonce::testing

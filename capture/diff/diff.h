// sumonce diff A B: how two safetensors files or folders differ, tensor by tensor.
//
// Memory is bounded whatever the tensors' sizes: they are read in pieces, those that differ several
// times.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/diff/figures.h"
#include "capture/diff/relation.h"
#include "verify/verdict.h"

namespace sumonce::diff {

struct DiffOptions {
  std::optional<double> rtol, atol;  // both or none: torch.testing.assert_close's for the dtypes
  std::string filter = "*";          // a glob of tensor names
};

// A tensor of both that is not the same in both.
struct TensorDiff {
  std::string name;
  DType dtype_a = DType::kFloat32, dtype_b = DType::kFloat32;
  std::vector<int64_t> shape_a, shape_b;
  Tolerances allowed;
  Figures figures;  // of equal shapes
  Relation relation;

  bool same_shape() const { return shape_a == shape_b; }
  // Beyond the tolerance, or of another shape or dtype.
  bool fails() const;
};

struct DiffReport {
  std::string a, b;
  int64_t compared = 0;               // tensors of both
  int64_t identical = 0;              // of these
  std::vector<TensorDiff> differing;  // close ones too; the worst first
  std::vector<std::string> only_a, only_b;
  std::vector<std::string> files_only_a, files_only_b;
  std::vector<std::string> unusable;  // files in the folders that are not compared, and why
};

absl::StatusOr<DiffReport> Diff(const std::string& a, const std::string& b,
                                const DiffOptions& options);

// For the reporters: what fails is a failure each, tensors with one relation together.
ScenarioResult ToResult(const DiffReport& report);

}  // namespace sumonce::diff

// The same step under another mesh, as the reference: its finalized gradients put together from
// their shards, piece by piece, and our holders compared with them in one pass.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/audit/cut_map.h"
#include "capture/audit/geometry.h"
#include "capture/audit/measure.h"
#include "capture/reader/step.h"

namespace sumonce::capture {

// How x compares with the reference's part g of it: x = coefficient * g + rest.
struct Against {
  double x_square = 0, g_square = 0, product = 0, difference = 0;  // sums over the elements

  double ratio() const;        // |x| / |g|
  double coefficient() const;  // the best one
  double misfit() const;       // |rest| / |x|
  double error() const;        // |x - g| / |g|; infinite if g is zero and x is not
  // |x - factor * g| / |factor * g|.
  double ErrorOf(double factor) const;
};

struct ReferenceFigures {
  std::vector<Against> finalized;  // by holder; x_square < 0: absent
  std::vector<Against> own;        // by place along the tensor axis: kappa * own against g
  std::vector<Against> sum;        // kappa * sum, the same
  bool contributions = false;      // own and sum are there
  bool cut = false;                // our ranks hold slices of it
  bool zero = true;                // the reference is exactly zero
  // Rows of dimension 0 of a matrix on the holders: right ones, and others.
  int64_t rows_right = 0;
  int64_t rows_wrong = 0;
  std::string problem;  // why it cannot be compared: absent, other shape
};

class Reference {
 public:
  // The step of this number in the capture folder. NotFound if there is none.
  static absl::StatusOr<Reference> Open(const std::string& path, int64_t step);

  const Step& step() const { return step_; }
  std::optional<double> grad_norm() const {
    return step_.Identity(step_.ranks().front()).grad_norm;
  }
  // Compares all holders. The error of reading a file.
  absl::StatusOr<ReferenceFigures> Compare(const Step& step, const ParamGeometry& geometry,
                                           const Measure& measure,
                                           const MeasureOptions& options) const;
  // Elements [begin, begin + count) of the whole tensor.
  absl::Status Read(const ParamGeometry& geometry, const CutMap& cut, int64_t begin, int64_t count,
                    std::vector<double>& out) const;
  const ParamGeometry* Find(const ParamGeometry& geometry) const;

 private:
  explicit Reference(Step step) : step_(std::move(step)) {}

  Step step_;
  std::map<std::string, ParamGeometry> geometries_;
};

// How our parameter is cut: by the file's word, or, where it does not say, by the two shapes.
absl::StatusOr<CutMap> CutOf(const ParamGeometry& geometry, const std::vector<int64_t>& local,
                             const std::vector<int64_t>& whole);

}  // namespace sumonce::capture

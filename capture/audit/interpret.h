// What a comparison with the reference says: right or not, and which class the contributions are of
// by the reference's word.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/audit/geometry.h"
#include "capture/audit/measure.h"
#include "capture/audit/reference.h"
#include "verify/verdict.h"

namespace sumonce::capture {

struct Interpretation {
  bool right = false;  // every holder's finalized gradient is the reference's part
  bool zero = false;   // so is everything: nothing can be seen
  // Of the contributions; unknown: they are no terms, copies or slices of the reference's gradient.
  GradClass grad_class = GradClass::kUnknown;
  double lambda = 1;     // the factor that they carry, in that class
  bool nearest = false;  // they are not of that class either, only nearest to it
  double worst_error = 0;
  std::vector<std::string> per_rank;  // "rank 0: 2 of the reference's norm, misfit 1e-07"
  double factor = 0;     // of the finalized gradients, on every rank; 0: none is common to all
  std::string relation;  // "2 times the reference on every rank", "" if there is none
};

Interpretation Interpret(const ReferenceFigures& figures, const ParamGeometry& geometry,
                         const Measure& measure, double rtol);

// Relative, in the norm: 1e-9 for float64, 2e-4 for float32, 5e-2 for narrower types.
double DefaultRtol(double roundoff);

}  // namespace sumonce::capture

// The gradient's global norm: as the framework recorded it, as the marks make it (which copies a
// framework counts is a mark, theory section 10.7), and of every parameter counted once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/audit/geometry.h"
#include "capture/audit/measure.h"
#include "capture/reader/step.h"

namespace sumonce::capture {

struct NormFigures {
  int64_t step = 1;
  std::optional<double> recorded;      // on the first rank that has one
  std::optional<double> implied;       // by the marks, on that rank
  std::optional<double> counted_once;  // of the lowest rank's copies
  std::optional<double> reference;     // recorded by the unsharded run
  std::string not_comparable;          // why counted_once is not there
  bool miscounted = false;             // recorded is not counted_once
  // Two ranks that recorded different norms, so that each clips by its own; "": there are none.
  std::string apart;
  // Copies that the marks count although another rank's is counted: parameter and how often.
  std::vector<std::string> counted_often;
};

// `figures[i]`: by holder, of geometry i.
NormFigures NormsOf(const Step& step, const std::vector<ParamGeometry>& geometries,
                    const std::vector<std::vector<HolderFigures>>& figures);

}  // namespace sumonce::capture

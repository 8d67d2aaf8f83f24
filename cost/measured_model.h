// A cost model made from measurements of this machine, its file, and what a cure costs by it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/cost_model.h"
#include "cost/measure.h"
#include "sim/scenario.h"
#include "verify/verdict.h"

namespace sumonce {

// How good a fit to two thirds of the sizes is on the other third.
struct HeldOut {
  int points = 0;
  int inside = 0;           // within the bar
  double median_error = 0;  // |predicted / measured - 1|
};

// Every third size is left out of a fit of its own. No points: too few sizes.
HeldOut CheckHeldOut(CallKind call, std::span<const CostPoint> points);

// As many sizes and rank counts as a fit needs, quickly: all-reduces of float32 from 4 bytes to
// 16 MiB over 2 ranks and over `ranks`.
absl::StatusOr<CostModel> Calibrate(const Transport& transport, const RunOptions& options,
                                    int ranks);

// The file of a model: JSON with a version. Parse: InvalidArgument, with what is missing or wrong.
std::string CostModelToJson(const CostModel& model, const std::string& transport);
absl::StatusOr<CostModel> CostModelFromJson(const std::string& json);

// What a cure adds to each step of a rank, its traffic against that of the run without it: calls,
// bytes (as float32, the dtype of Megatron's main_grad) and predicted time. `ranks`: as if the
// groups of the calls that change had so many; 0: as they are.
CureCost CostOfCure(const Scenario& scenario, std::span<const Edit> before,
                    std::span<const Edit> after, const CostModel& model, int ranks = 0);

}  // namespace sumonce

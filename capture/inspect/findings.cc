#include "capture/inspect/findings.h"

#include <utility>

namespace sumonce::inspect {
namespace {

struct Word {
  AdapterFault fault;
  std::string_view name;
  std::string_view meaning;
};

constexpr Word kWords[] = {
    {AdapterFault::kLoraReplica, "LORA_REPLICA_SIGNATURE",
     "lora_B of a row-parallel target is exactly zero in the last layer alone: what the missing "
     "sum "
     "over tp leaves where the exported rank's tokens are masked"},
    {AdapterFault::kZeroFactor, "ZERO_FACTOR",
     "a factor is exactly zero although other modules were trained"},
    {AdapterFault::kEqualFactors, "EQUAL_FACTORS",
     "factors of different modules are bitwise equal"},
    {AdapterFault::kUnsharedFactors, "UNSHARED_FACTORS",
     "sub-projections of one fused matrix have different lora_A, in other layers one"},
    {AdapterFault::kNotFinite, "NOT_FINITE", "an entry is infinite or not a number"},
    {AdapterFault::kShapeMismatch, "SHAPE_MISMATCH",
     "factors do not fit each other or the rank of adapter_config.json"},
    {AdapterFault::kMissingKey, "MISSING_KEY",
     "a tensor is not there that the configuration or the other layers ask for"},
    {AdapterFault::kExtraKey, "EXTRA_KEY", "a tensor that the configuration does not name"},
    {AdapterFault::kMixedDtype, "MIXED_DTYPE", "factors of several element types, or of integers"},
    {AdapterFault::kBadPattern, "BAD_PATTERN",
     "an entry of rank_pattern or alpha_pattern that fits no module, or turns it off"},
    {AdapterFault::kNormOutlier, "NORM_OUTLIER",
     "a layer's update is more than ten times larger or smaller than the other layers'"},
};
static_assert(std::size(kWords) == kAdapterFaults);

}  // namespace

std::string_view Name(AdapterFault fault) { return kWords[static_cast<size_t>(fault)].name; }
std::string_view Meaning(AdapterFault fault) { return kWords[static_cast<size_t>(fault)].meaning; }

}  // namespace sumonce::inspect

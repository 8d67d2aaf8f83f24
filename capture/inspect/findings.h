// What can be wrong with an adapter, found in its names, shapes and values: one check a function,
// each pure. What a file cannot tell is said by inspect.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "capture/inspect/adapter.h"
#include "capture/inspect/factor_facts.h"

namespace sumonce::inspect {

enum class AdapterFault : uint8_t {
  kLoraReplica,      // a row target's lora_B of the last layer is zero, and others are not
  kZeroFactor,       // another factor is zero
  kEqualFactors,     // factors of different modules are bitwise equal
  kUnsharedFactors,  // factors that other layers share differ
  kNotFinite,
  kShapeMismatch,  // tensors against each other, or against the configuration
  kMissingKey,
  kExtraKey,
  kMixedDtype,
  kBadPattern,   // rank_pattern or alpha_pattern that names nothing
  kNormOutlier,  // a layer's update is far from the other layers'
};
// "LORA_REPLICA_SIGNATURE", ...: the words of reports, and of `sumonce explain`.
std::string_view Name(AdapterFault fault);
// One sentence that explains the word.
std::string_view Meaning(AdapterFault fault);
inline constexpr int kAdapterFaults = 11;

struct AdapterFinding {
  AdapterFault fault = AdapterFault::kLoraReplica;
  std::vector<std::string> tensors;  // or modules
  std::string says;                  // the whole sentence, tensors included
};
using AdapterFindings = std::vector<AdapterFinding>;

// Names and shapes.
void CheckKeys(const Adapter& adapter, AdapterFindings& findings);
void CheckShapes(const Adapter& adapter, AdapterFindings& findings);
void CheckDtypes(const Adapter& adapter, AdapterFindings& findings);
void CheckPatterns(const Adapter& adapter, AdapterFindings& findings);

// Values; `facts` has an entry for each module.
using Facts = std::vector<ModuleFacts>;
void CheckFinite(const Adapter& adapter, const Facts& facts, AdapterFindings& findings);
void CheckZeros(const Adapter& adapter, const Facts& facts, AdapterFindings& findings);
void CheckEqual(const Adapter& adapter, const Facts& facts, AdapterFindings& findings);
void CheckShared(const Adapter& adapter, const Facts& facts, AdapterFindings& findings);
void CheckNorms(const Adapter& adapter, const Facts& facts, AdapterFindings& findings);

// Whether every lora_B is zero: an adapter before its first step. False without any lora_B.
bool Untrained(const Facts& facts);

// The leaves that one fused projection of Megatron becomes ("q_proj", "k_proj", "v_proj"), whose
// lora_A is then one tensor written several times. Empty: none of these.
std::vector<std::string_view> FusedWith(std::string_view leaf);
// The same, where lora_A is shared in most layers: what an export from Megatron looks like.
bool ExportedFused(const Adapter& adapter, const Facts& facts);

// Layers of one family below which their norms are not compared.
inline constexpr int kLeastLayersForNorms = 4;

}  // namespace sumonce::inspect

// What the module classes of real frameworks are to the model of this program: the one table of
// class names. A class that is not in it is unknown, whatever it derives from: a subclass may
// communicate otherwise. A job's own classes are described in a module map (module_map.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sumonce::lint {

enum class ModuleKind : uint8_t {
  kUnknown,
  kNeutral,  // no parameters and no communication: rotary embedding, dropout, wrappers
  kModel,
  kBlock,
  kLayer,
  kEmbedding,
  kVocabEmbedding,
  kPositionEmbedding,
  kSelfAttention,
  kMla,
  kGatedDeltaNet,
  kGatherGatedDeltaNet,  // gathers the sequence in front of its projections (GathersSequence)
  kMlp,
  kMoe,
  kRouter,
  kColumnLinear,
  kNormColumnLinear,  // a norm fused in front
  kRowLinear,
  kReplicatedLinear,  // a whole weight on every rank, no communication
  kNorm,
  kConv,
  kLora,  // mcore-bridge's LoraParallelLinear
};

ModuleKind KindOfClass(std::string_view class_name);
// "column-parallel linear", ...: for messages. kUnknown: "unknown".
std::string_view Name(ModuleKind kind);
// The kinds that a module map may name, by their names there ("COLUMN_PARALLEL_LINEAR").
const std::vector<std::pair<std::string_view, ModuleKind>>& KindsOfModuleMap();

// Whether this mcore-bridge's GatedDeltaNet gathers the sequence and turns sequence parallelism of
// its projections off for the call (1.6.2 and later). `version`: "1.6.5".
bool GathersSequence(std::string_view version);

// {1, 6, 5} of "1.6.5rc1+cu13"; missing numbers are 0. Empty if there is none.
std::vector<int> VersionNumbers(std::string_view version);

}  // namespace sumonce::lint

// The parts of a transformer layer: mixers and MLPs. Each function maps a module onto the
// configuration of ours, or says why it cannot; then none of its parameters is mapped.
#pragma once

#include <optional>
#include <string>

#include "capture/lint/linear_map.h"

namespace sumonce::lint {

// Small extents, multiples of tp.
struct SmallSizes {
  int64_t hidden = 4;
  int64_t units = 2;  // groups, key heads, features of the MLP: one for each rank at least
};
SmallSizes SizesFor(int tp);

// "" and the layer's mixer or MLP set, or why not. `norm_in_front`: the layer has a norm of its own
// there.
std::string MapSelfAttention(const MapContext& context, const std::string& path,
                             const std::string& ours, bool norm_in_front,
                             DecoderLayerConfig& layer);
std::string MapGatedDeltaNet(const MapContext& context, const std::string& path,
                             const std::string& ours, bool norm_in_front,
                             DecoderLayerConfig& layer);
std::string MapLatentAttention(const MapContext& context, const std::string& path,
                               const std::string& ours, bool norm_in_front,
                               DecoderLayerConfig& layer);
std::string MapMlp(const MapContext& context, const std::string& path, const std::string& ours,
                   bool norm_in_front, DecoderLayerConfig& layer);

// What stands in for a module that is not modelled: it takes and returns the stream as ours does.
SelfAttentionConfig StandInMixer(int tp, bool norm_in_front);
MlpConfig StandInMlp(int tp, bool norm_in_front);

}  // namespace sumonce::lint

// A standalone RMSNorm as Transformer Engine's TENorm builds it (megatron/core/extensions/
// transformer_engine.py): its weight is marked sequence_parallel whenever the configuration is,
// whatever its input really is.
#pragma once

#include "layers/module.h"
#include "spmd/ops/rms_norm.h"

namespace sumonce {

// The norm's options under a configuration, over one dimension.
RmsNormOptions NormOptions(const LayerConfig& config, Dim dim);

class RmsNormLayer {
 public:
  // Over the hidden dimension, weight path().weight [h].
  RmsNormLayer(const Builder& builder, int64_t hidden);
  // Over any dimension, with the caller's marks.
  RmsNormLayer(const Builder& builder, const DimExtent& dim, Marks marks);

  Value Forward(Tape& tape, Value x);  // x: [..., dim] -> as x

 private:
  std::string name_;
  RmsNormOptions options_;
  Param* weight_;
};

}  // namespace sumonce

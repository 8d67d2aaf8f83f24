#include "layers/norm/rms_norm.h"

namespace sumonce {

RmsNormOptions NormOptions(const LayerConfig& config, Dim dim) {
  return {.dims = {dim},
          .eps = config.norm_eps,
          .zero_centered = config.norm == NormKind::kZeroCentered};
}

RmsNormLayer::RmsNormLayer(const Builder& builder, int64_t hidden)
    : RmsNormLayer(builder, Plain(Dim::kHidden, hidden), SequenceParallelMarks(builder.config())) {}

RmsNormLayer::RmsNormLayer(const Builder& builder, const DimExtent& dim, Marks marks)
    : name_(builder.name()),
      options_(NormOptions(builder.config(), dim.dim)),
      weight_(
          &builder.Create("weight", ShardMap({dim}, {}), NormInit(builder.config().norm), marks)) {}

Value RmsNormLayer::Forward(Tape& tape, Value x) {
  Tape::Scope scope(tape, name_);
  return RmsNorm(tape, x, tape.Use(*weight_), options_);
}

}  // namespace sumonce

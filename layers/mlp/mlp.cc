#include "layers/mlp/mlp.h"

#include "spmd/ops/gelu.h"
#include "spmd/ops/squared_relu.h"
#include "spmd/ops/swiglu.h"

namespace sumonce {
namespace {

LinearConfig Fc1(const MlpConfig& config, bool communicates) {
  DimExtent out = Plain(Dim::kFfn, config.ffn);
  std::vector<SubOutput> subs;
  if (config.activation == MlpActivation::kSwiglu) {
    subs = {{"gate_proj", 0, 1}, {"up_proj", 1, 1}};
    out.parts = {1, 1};
    out.packing = Packing::kPartMajor;
  }
  return {.out = {out},
          .in = {Plain(Dim::kHidden, config.hidden)},
          .cut = Dim::kFfn,
          .bias = config.bias,
          .layer_norm = config.layer_norm,
          .communicates = communicates,
          .subs = subs};
}

LinearConfig Fc2(const MlpConfig& config, bool communicates) {
  return {.out = {Plain(Dim::kHidden, config.hidden)},
          .in = {Plain(Dim::kFfn, config.ffn)},
          .cut = Dim::kFfn,
          .bias = config.bias,
          .communicates = communicates};
}

Value Activated(Tape& tape, Value x, MlpActivation activation) {
  switch (activation) {
    case MlpActivation::kSwiglu:
      return Swiglu(tape, x);
    case MlpActivation::kLinear:
      return x;
    case MlpActivation::kGelu:
      return Gelu(tape, x);
    case MlpActivation::kGeluTanh:
      return GeluTanh(tape, x);
    case MlpActivation::kSquaredRelu:
      return SquaredRelu(tape, x);
  }
  return x;
}

}  // namespace

MlpLinears::MlpLinears(const Builder& builder, const MlpConfig& config, bool communicates)
    : activation_(config.activation),
      linear_fc1_(builder.Child("linear_fc1"), Fc1(config, communicates)),
      linear_fc2_(builder.Child("linear_fc2"), Fc2(config, communicates)) {}

Value MlpLinears::Forward(Tape& tape, Value x) {
  return linear_fc2_.Forward(tape, Activated(tape, linear_fc1_.Forward(tape, x), activation_));
}

void MlpLinears::CollectModules(std::vector<ToggleableModule>& modules) {
  linear_fc1_.CollectModules(modules);
  linear_fc2_.CollectModules(modules);
}

Mlp::Mlp(const Builder& builder, const MlpConfig& config)
    : name_(builder.name()), linears_(builder, config, /*communicates=*/true) {}

Value Mlp::Forward(Tape& tape, Value x) {
  Tape::Scope scope(tape, name_);
  return linears_.Forward(tape, x);
}

}  // namespace sumonce

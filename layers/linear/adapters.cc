#include "layers/linear/parallel_linear.h"
#include "spmd/ops/add.h"
#include "spmd/ops/take_parts.h"

namespace sumonce {
namespace {

LoraAdapter::Shape ShapeOf(const LinearConfig& config, LoraAdapter::Target target) {
  return {.target = target,
          .out = config.out,
          .in = config.in,
          .cuts = CutsOf(config),
          .communicates = config.communicates};
}

// The output of one sub-projection: the same units with its parts alone.
Dims SubOut(const LinearConfig& config, const SubOutput& sub) {
  Dims out = config.out;
  const auto parts = config.out[0].parts.begin() + sub.first;
  out[0].parts.assign(parts, parts + sub.count);
  if (out[0].plain()) out[0].packing = Packing::kUnitMajor;
  return out;
}

}  // namespace

Adapters::Adapters(const Builder& builder, const LinearConfig& config, LoraAdapter::Target target,
                   const Marks& replicated)
    : fused_(config.out[0]) {
  const LoraConfig& lora = builder.config().lora;
  if (!lora.Targets(builder.path())) return;
  if (!lora.per_sub_projection || config.subs.empty()) {
    adapters_.push_back(
        {.name = "",
         .lora = std::make_unique<LoraAdapter>(builder, ShapeOf(config, target), replicated)});
    return;
  }
  for (const SubOutput& sub : config.subs) {
    LoraAdapter::Shape shape = ShapeOf(config, target);
    shape.out = SubOut(config, sub);
    adapters_.push_back(
        {.name = sub.name,
         .first = sub.first,
         .lora = std::make_unique<LoraAdapter>(builder.Child(sub.name), shape, replicated)});
  }
}

Value Adapters::AddTo(Tape& tape, Value y, Value x) {
  for (Adapter& adapter : adapters_) {
    if (adapter.name.empty()) return Add(tape, y, adapter.lora->Forward(tape, x));
    Tape::Scope scope(tape, adapter.name);
    const Value part = adapter.lora->Forward(tape, x);
    y = Add(tape, y, PlaceParts(tape, part, {.into = fused_, .first = adapter.first}));
  }
  return y;
}

void Adapters::CollectModules(std::vector<ToggleableModule>& modules) {
  for (Adapter& adapter : adapters_) adapter.lora->CollectModules(modules);
}

}  // namespace sumonce

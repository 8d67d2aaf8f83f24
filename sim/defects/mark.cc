// A mark is set or cleared: at build, during the forward pass of its module, or after backward; on
// some ranks or on all.
#include <algorithm>

#include "base/text.h"
#include "sim/defects/effect.h"

namespace sumonce {
namespace {

class MarkEffect : public Effect {
 public:
  MarkEffect(MarkEdit edit, int rank) : edit_(std::move(edit)), rank_(rank) {}

  void OnBuilt(ParamStore& params) override {
    if (edit_.when == When::kAtBuild) ApplyTo(params);
  }
  void OnUse(Param& param) override {
    if (edit_.when == When::kDuringCall) ApplyTo(param);
  }
  void OnBackwardDone(ParamStore& params) override {
    if (edit_.when == When::kAfterBackward) ApplyTo(params);
  }

 private:
  void ApplyTo(ParamStore& params) {
    for (Param& param : params.all()) ApplyTo(param);
  }
  void ApplyTo(Param& param) {
    if (!ActsOn(edit_.ranks, rank_) || !GlobMatches(edit_.param, param.name)) return;
    switch (edit_.mark) {
      case Mark::kSequenceParallel:
        param.marks.sequence_parallel = edit_.set;
        break;
      case Mark::kAverageGradientsAcrossTpDomain:
        param.marks.average_gradients_across_tp_domain = edit_.set;
        break;
      case Mark::kTensorModelParallel:
        param.marks.tensor_model_parallel = edit_.set;
        break;
      case Mark::kAllreduce:
        param.marks.allreduce = edit_.set;
        break;
    }
  }

  MarkEdit edit_;
  int rank_;
};

}  // namespace

std::map<std::string, Mark> DisagreeingMarks(const ModelConfig& model, int world_size,
                                             std::span<const Edit> edits) {
  std::map<std::string, Mark> disagreeing;
  const auto of_some_ranks = [](const Edit& edit) {
    const auto* mark = std::get_if<MarkEdit>(&edit.kind);
    return mark && !mark->ranks.empty();
  };
  if (std::none_of(edits.begin(), edits.end(), of_some_ranks)) return disagreeing;
  std::map<std::string, Marks> first;
  for (int rank = 0; rank < world_size; ++rank) {
    Effects effects(edits, rank);
    Model built(model);
    for (const auto& effect : effects.all()) effect->OnBuilt(built.params());
    for (Param& param : built.params().all()) {
      for (const auto& effect : effects.all()) effect->OnUse(param);
    }
    for (const auto& effect : effects.all()) effect->OnBackwardDone(built.params());
    for (const Param& param : built.params().all()) {
      const Marks& peer = first.emplace(param.name, param.marks).first->second;
      if (peer.sequence_parallel != param.marks.sequence_parallel)
        disagreeing[param.name] = Mark::kSequenceParallel;
      if (peer.average_gradients_across_tp_domain !=
          param.marks.average_gradients_across_tp_domain) {
        disagreeing[param.name] = Mark::kAverageGradientsAcrossTpDomain;
      }
      if (peer.allreduce != param.marks.allreduce) disagreeing[param.name] = Mark::kAllreduce;
    }
  }
  return disagreeing;
}

std::unique_ptr<Effect> MakeEffect(const MarkEdit& edit, int rank) {
  return std::make_unique<MarkEffect>(edit, rank);
}

}  // namespace sumonce

// A mark is set or cleared: at build, during the forward pass of its module, or after backward; on
// some ranks or on all.
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

std::unique_ptr<Effect> MakeEffect(const MarkEdit& edit, int rank) {
  return std::make_unique<MarkEffect>(edit, rank);
}

}  // namespace sumonce

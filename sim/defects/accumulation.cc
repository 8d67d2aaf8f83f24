// What goes wrong between backward and the finalizer, in the gradient buffer: a microbatch's term
// lost or counted twice, a buffer that keeps the last step's gradient.
#include "base/text.h"
#include "sim/defects/effect.h"

namespace sumonce {
namespace {

class MicrobatchEffect : public Effect {
 public:
  explicit MicrobatchEffect(MicrobatchEdit edit) : edit_(std::move(edit)) {}

  int TimesCounted(const Param& param, int microbatch) override {
    if (microbatch != edit_.index || !GlobMatches(edit_.param, param.name)) return 1;
    return edit_.repeat ? 2 : 0;
  }
  void OnState(const Param& param, State& state) override {
    if (GlobMatches(edit_.param, param.name) && !state.lost) {
      state.lost = {"a microbatch's term is not counted once: a factor per term, not per axis", -1};
    }
  }

 private:
  MicrobatchEdit edit_;
};

class StaleEffect : public Effect {
 public:
  StaleEffect(StaleEdit edit, int rank) : edit_(std::move(edit)), rank_(rank) {}

  bool KeepsBuffer(const Param& param) override {
    return ActsOn(edit_.ranks, rank_) && GlobMatches(edit_.param, param.name);
  }
  void OnState(const Param& param, State& state) override {
    if (GlobMatches(edit_.param, param.name) && !state.lost) {
      state.lost = {"the gradient buffer keeps an earlier step's gradient", -1};
    }
  }

 private:
  StaleEdit edit_;
  int rank_;
};

}  // namespace

std::unique_ptr<Effect> MakeEffect(const MicrobatchEdit& edit, int) {
  return std::make_unique<MicrobatchEffect>(edit);
}
std::unique_ptr<Effect> MakeEffect(const StaleEdit& edit, int rank) {
  return std::make_unique<StaleEffect>(edit, rank);
}

}  // namespace sumonce

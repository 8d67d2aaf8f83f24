// What a gather region does with the marks of the parameters inside: the second founding case.
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "sim/defects/effect.h"

namespace sumonce {
namespace {

class RegionMarksEffect : public Effect {
 public:
  explicit RegionMarksEffect(RegionMarksEdit edit) : edit_(std::move(edit)) {}

  void OnConfig(ModelConfig& model) override {
    for (size_t i = 0; i < model.layers.size(); ++i) {
      if (!GlobMatches(edit_.module, absl::StrCat("decoder.layers.", i, ".self_attention")))
        continue;
      auto* mixer = std::get_if<GatedDeltaNetConfig>(&model.layers[i].mixer);
      if (mixer) mixer->region_marks = edit_.marks;
    }
  }

 private:
  RegionMarksEdit edit_;
};

}  // namespace

std::unique_ptr<Effect> MakeEffect(const RegionMarksEdit& edit, int) {
  return std::make_unique<RegionMarksEffect>(edit);
}

}  // namespace sumonce

// The exact mode promises sums without rounding: only a linear model keeps its integers.
#include "absl/strings/str_cat.h"
#include "sim/reader/reading.h"

namespace sumonce {
namespace {

constexpr char kCure[] =
    ", expected a linear model with data { fill: EXACT }; take layers of mlp { activation: LINEAR "
    "no_norm: true } and head: PROBE, or fill: NORMAL";

void CheckLayer(const Block& block, const DecoderLayerConfig& layer) {
  const std::string mixer = block.Which("mixer");
  if (!mixer.empty()) block.Add(mixer, mixer + " is not linear" + kCure);
  if (!layer.mlp) return;
  const Block mlp = block.Child("mlp");
  if (layer.mlp->activation != MlpActivation::kLinear) {
    mlp.Add("activation", absl::StrCat("activation: SWIGLU is not linear", kCure));
  }
  if (layer.mlp->layer_norm)
    mlp.Add("no_norm", absl::StrCat("the norm of mlp is not linear", kCure));
}

}  // namespace

void CheckExact(const Block& root, Reading& reading) {
  const Scenario& scenario = reading.scenario;
  if (scenario.data.fill != Fill::kExact) return;
  const Block model = root.Child("model");
  const std::vector<Block> layers = model.Children("layer");
  for (size_t i = 0; i < scenario.model.layers.size(); ++i) {
    CheckLayer(layers[i], scenario.model.layers[i]);
  }
  if (scenario.model.head != Head::kProbe) {
    model.Add("head", absl::StrCat("head: CROSS_ENTROPY is not linear", kCure));
  }
  if (scenario.steps > 1) {
    root.Add("steps", absl::StrCat("steps: ", scenario.steps,
                                   " with data { fill: EXACT }, expected 1: the optimizer's step "
                                   "leaves the integers; take steps: 1 or fill: NORMAL"));
  }
}

}  // namespace sumonce

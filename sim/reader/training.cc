// What happens in and after a step: loss, optimizer, steps, finalizer, export.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sim/finalize/finalizer.h"
#include "sim/reader/reading.h"

namespace sumonce {
namespace {

// Below 1: the bias correction divides by 1 - beta^step.
double ReadBeta(const Block& block, const char* field, double fallback) {
  const double beta = block.Number(field, fallback, 0, 1);
  if (beta < 1) return beta;
  block.Add(field, absl::StrCat(field, ": 1, expected less than 1; take 0.9"));
  return fallback;
}

void ReadOptimizer(const Block& block, OptimizerConfig& optimizer) {
  optimizer.lr = block.Number("lr", optimizer.lr, 0);
  optimizer.beta1 = ReadBeta(block, "beta1", optimizer.beta1);
  optimizer.beta2 = ReadBeta(block, "beta2", optimizer.beta2);
  optimizer.eps = block.Number("eps", optimizer.eps, 0);
  optimizer.weight_decay = block.Number("weight_decay", optimizer.weight_decay, 0);
  optimizer.clip_grad = block.Number("clip_grad", optimizer.clip_grad, 0);
  optimizer.norm_type = block.Choice("norm_type", optimizer.norm_type,
                                     {{"L2", NormType::kL2}, {"INF", NormType::kInf}});
}

void ReadPrecision(const Block& block, Scenario& scenario) {
  PrecisionConfig& precision = scenario.precision;
  precision = {.bf16 = block.Flag("bf16"),
               .grad_reduce_in_fp32 = block.Flag("grad_reduce_in_fp32")};
  if (precision.grad_reduce_in_fp32 && !precision.bf16) {
    block.Add("grad_reduce_in_fp32",
              "grad_reduce_in_fp32 without bf16, expected both: gradients of float64 weights are "
              "float64; add bf16: true or take it out");
  }
  if (precision.bf16 && scenario.data.fill == Fill::kExact) {
    block.Add("bf16",
              "bf16 with data that makes every sum exact (fill: EXACT), expected one of them: bf16 "
              "rounds; take one out");
  }
}

bool HasQkLayernorm(const ModelConfig& model) {
  return std::any_of(model.layers.begin(), model.layers.end(), [](const DecoderLayerConfig& layer) {
    const auto* attention = std::get_if<SelfAttentionConfig>(&layer.mixer);
    const auto* latent = std::get_if<LatentAttentionConfig>(&layer.mixer);
    return latent || (attention && attention->qk_layernorm);
  });
}

void ReadFinalizer(const Block& root, Scenario& scenario) {
  const std::string name = root.Text("finalizer");
  if (!name.empty()) scenario.finalizer = name;
  const std::vector<std::string> names = Finalizers().names();
  if (std::find(names.begin(), names.end(), scenario.finalizer) == names.end()) {
    root.Add("finalizer", absl::StrCat("finalizer: unknown \"", scenario.finalizer, "\", expected ",
                                       OneOf(names), DidYouMean(scenario.finalizer, names)));
  }
  scenario.qk_layernorm =
      root.Given("qk_layernorm") ? root.Flag("qk_layernorm") : HasQkLayernorm(scenario.model);
}

}  // namespace

void ReadTraining(const Block& root, Reading& reading) {
  Scenario& scenario = reading.scenario;
  scenario.loss =
      root.Choice("loss", scenario.loss,
                  {{"PER_TOKEN", LossMode::kPerToken}, {"MEAN_OF_CELLS", LossMode::kMeanOfCells}});
  ReadOptimizer(root.Child("optimizer"), scenario.optimizer);
  ReadPrecision(root.Child("precision"), scenario);
  scenario.steps = static_cast<int>(root.Int("steps", scenario.steps, 1, 100000));
  scenario.record_every = static_cast<int>(root.Int("record_every", scenario.record_every, 1));
  scenario.seed = reading.overrides->seed.value_or(root.Unsigned("seed", scenario.seed));
  ReadFinalizer(root, scenario);
  scenario.export_adapter = root.Flag("export_adapter");
  scenario.harmless = root.Flag("harmless");
  if (scenario.export_adapter && !scenario.model.common.lora.enabled) {
    root.Add("export_adapter",
             "export_adapter without lora, expected an adapter to export; add "
             "lora { target: ... } or take it out");
  }
}

}  // namespace sumonce

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "report/glossary.h"
#include "spmd/operation.h"

namespace sumonce {
namespace {

// What an operation computes. A test asks for every registered one.
const std::map<std::string, std::string>& Formulas() {
  static const auto& formulas = *new std::map<std::string, std::string>{
      {"Add", "y = a + b"},
      {"AddBias", "y = x + b, b for every token"},
      {"Attention", "y = softmax(q k^T / sqrt(d), causal) v, for every head"},
      {"CausalConv", "y_t = silu(sum over i of w_i x_(t-i)), for every channel"},
      {"Concat", "y = [a | b] along a dimension, b the same for several of a's rows or its own"},
      {"DeltaRule",
       "S_t = exp(g_t) S_(t-1) (I - beta_t k_t k_t^T) + beta_t v_t k_t^T; y_t = S_t q_t"},
      {"DeltaState", "y = S_T, the delta rule's state after the last token"},
      {"Dot", "y = sum of a b"},
      {"GatedNorm", "y = w x / rms(x) silu(z), for every value head"},
      {"Gelu", "y = x Phi(x)"},
      {"GeluTanh", "y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))"},
      {"GdnDecay", "g = -exp(A_log) softplus(a + dt_bias)"},
      {"JoinParts", "y = parts of a packed dimension put together"},
      {"L2Norm", "y = x / sqrt(sum of x^2 + eps), for every head"},
      {"Linear", "y = x W^T"},
      {"Log", "y = log x"},
      {"MaxOver", "y = maximum of x over a dimension"},
      {"Product", "y = x m, element by element"},
      {"Regroup", "y = x with a plain dimension read as units"},
      {"RmsNorm", "y = w x / rms(x), for every token"},
      {"Rope", "y = x rotated by position"},
      {"ScaleBy", "y = a x, one factor a token"},
      {"Shift", "y = x + a number"},
      {"Sigmoid", "y = 1 / (1 + exp(-x))"},
      {"SigmoidGate", "y = x sigmoid(z)"},
      {"Silu", "y = x sigmoid(x)"},
      {"SquaredRelu", "y = max(x, 0)^2"},
      {"Subtract", "y = a - b"},
      {"SumExp", "y = sum of exp(x - m) over the vocabulary"},
      {"Swiglu", "y = silu(gate) up"},
      {"TakeParts", "y = parts of x along a packed dimension"},
      {"TakeRange", "y = some adjacent entries of x along a dimension"},
      {"Unfold", "y = x with a merged dimension taken apart"},
  };
  return formulas;
}

// A scenario whose model applies it; tests look.
std::string ScenarioOfOperation(const std::string& operation) {
  static const auto& shown = *new std::map<std::string, std::string>{
      {"AddBias", "gpt/row_bias_flag_missing"},
      {"CausalConv", "gdn/upstream"},
      {"Concat", "mla/rotary_key_unsummed"},
      {"DeltaRule", "gdn/upstream"},
      {"GatedNorm", "gdn/upstream"},
      {"GdnDecay", "gdn/upstream"},
      {"Gelu", "gpt/activations"},
      {"GeluTanh", "gpt/activations"},
      {"JoinParts", "lora/sub_projections_flag_missing"},
      {"L2Norm", "gdn/upstream"},
      {"Product", "lora/dropout_and_bias"},
      {"Regroup", "gqa/groups_shared"},
      {"ScaleBy", "moe/shared_expert"},
      {"SigmoidGate", "moe/shared_expert"},
      {"SquaredRelu", "gpt/activations"},
      {"TakeRange", "mla/rotary_key_unsummed"},
  };
  if (operation == "DeltaState") return "";  // of a state that is handed on; no scenario does
  const auto found = shown.find(operation);
  return found == shown.end() ? "lora/all_targets" : found->second;
}

// What must stand in front of it, by its declaration: where the proof loses a state at it, that is
// missing.
std::string CureOfOperation(const OperationExample& example) {
  const absl::StatusOr<Declaration> declared = example.operation->Declare(example.operands);
  if (!declared.ok()) return "";
  std::vector<std::string> parts;
  if (declared->mixes != 0)
    parts.push_back(absl::StrCat("gather what is cut along ", Describe(declared->mixes)));
  if (declared->addition) {
    parts.push_back("sum the one operand's terms where the other is complete");
  } else if (declared->linear != Linear(0)) {
    parts.push_back(declared->linear == 0 ? "sum terms"
                                          : "sum terms, but for one operand that it is linear in");
  }
  if (declared->sums != 0)
    parts.push_back(absl::StrCat("behind it sum over what cuts ", Describe(declared->sums)));
  return parts.empty() ? "nothing: cuts and terms pass" : absl::StrJoin(parts, "; ");
}

// The declaration of one application, as the prover reads it.
std::vector<std::string> DeclarationLines(const OperationExample& example) {
  const absl::StatusOr<Declaration> declared = example.operation->Declare(example.operands);
  if (!declared.ok()) return {};
  std::vector<std::string> linear;
  for (size_t i = 0; i < example.operands.size(); ++i) {
    if (declared->linear >> i & 1U) linear.push_back(absl::StrCat(i + 1));
  }
  std::vector<std::string> lines = {
      declared->addition ? std::string("addition: operands of one state keep it")
      : linear.empty()   ? std::string("linear in no operand")
                         : absl::StrCat("linear in operand ", absl::StrJoin(linear, ", "))};
  if (declared->sums != 0) lines.push_back(absl::StrCat("sums over ", Describe(declared->sums)));
  if (declared->mixes != 0) lines.push_back(absl::StrCat("mixes ", Describe(declared->mixes)));
  if (declared->maxima != 0)
    lines.push_back(absl::StrCat("maximum over ", Describe(declared->maxima)));
  return lines;
}

}  // namespace

std::vector<GlossaryEntry> GlossaryOfOperations() {
  std::vector<GlossaryEntry> entries;
  for (const auto& [name, examples] : Operations().all()) {
    const auto formula = Formulas().find(name);
    GlossaryEntry entry{.kind = "operation",
                        .word = name,
                        .says =
                            "computed by each rank on what it holds; what is neither summed nor "
                            "mixed may be cut",
                        .formula = formula == Formulas().end() ? "" : formula->second,
                        .shown_by = ScenarioOfOperation(name)};
    if (!examples.empty()) {
      entry.cure = CureOfOperation(examples.front());
      entry.details = DeclarationLines(examples.front());
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<GlossaryEntry> Glossary() {
  std::vector<GlossaryEntry> all;
  for (std::vector<GlossaryEntry> part :
       {GlossaryOfVerdicts(), GlossaryOfAdapters(), GlossaryOfModels(), GlossaryOfDefects(),
        GlossaryOfFinalizers(), GlossaryOfOperations()}) {
    for (GlossaryEntry& entry : part) all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace sumonce

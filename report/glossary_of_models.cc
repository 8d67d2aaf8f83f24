#include <utility>

#include "report/glossary.h"

namespace sumonce {
namespace {

std::vector<GlossaryEntry> MarkEntries() {
  return {
      {.kind = "mark",
       .word = "sequence_parallel",
       .says = "the parameter's gradient is its rank's share: finalizers sum it over tp, while "
               "sequence parallelism is on",
       .formula = "f = sum over tp of g",
       .shown_by = "lora/row_flag_missing"},
      {.kind = "mark",
       .word = "average_gradients_across_tp_domain",
       .says = "finalizers average the gradient over tp; wins over sequence_parallel, and does "
               "nothing to equal copies",
       .formula = "f = (sum over tp of g) / tp",
       .shown_by = "lora/averaged_partial"},
      {.kind = "mark",
       .word = "tensor_model_parallel",
       .says = "the parameter is cut over tp along partition_dim: norms count every rank's part"},
      {.kind = "mark",
       .word = "allreduce",
       .says = "the data-parallel sum takes the dense group (dp with cp), not the experts'"},
      {.kind = "mark",
       .word = "shared",
       .says = "a copy on another pipeline stage exists: norms count it once"},
  };
}

std::vector<GlossaryEntry> LayerEntries() {
  return {
      {.kind = "layer",
       .word = "linear_qkv",
       .says =
           "column-parallel: rows of W are cut; under sequence parallelism the input is gathered "
           "and its gradient reduce-scattered, and the fused norm sees the rank's own tokens",
       .formula = "y_k = norm(x) W_k^T",
       .shown_by = "lora/column_flag_missing"},
      {.kind = "layer",
       .word = "linear_proj",
       .says =
           "row-parallel: columns of W are cut; terms of y are summed, or reduce-scattered under "
           "sequence parallelism",
       .formula = "y = sum over k of x_k W_k^T",
       .shown_by = "lora/row_flag_missing"},
      {.kind = "layer",
       .word = "position_embeddings",
       .says =
           "a learned table, a copy on every rank, added to the words' embedding before the sum is "
           "scattered over the sequence: its gradient is complete on every rank",
       .formula = "y = word[token] + position[t]",
       .shown_by = "gpt/position_embedding_flagged"},
      {.kind = "layer",
       .word = "bias",
       .says =
           "of a column-parallel linear cut with the rows of W; of a row-parallel one a copy on "
           "every rank, added behind the sum, on the rank's own tokens under sequence parallelism",
       .formula = "y = x W^T + b",
       .shown_by = "gpt/row_bias_flag_missing"},
      {.kind = "layer",
       .word = "linear_fc1",
       .says = "column-parallel, gate and up projections in one matrix",
       .formula = "y = norm(x) [W_gate; W_up]^T",
       .shown_by = "lora/all_targets"},
      {.kind = "layer",
       .word = "linear_fc2",
       .says = "row-parallel, after the activation",
       .formula = "y = act(fc1) W^T; act: silu(gate) * up, gelu, its tanh form, or max(x, 0)^2",
       .shown_by = "lora/all_targets"},
      {.kind = "layer",
       .word = "lora",
       .says =
           "the factor beside the cut is replicated: lora_A of a column target, lora_B of a row "
           "target; the other is cut with the weight",
       .formula = "y += (alpha / r) B (A x)",
       .shown_by = "lora/all_targets"},
  };
}

std::vector<GlossaryEntry> MixerEntries() {
  return {
      {.kind = "layer",
       .word = "self_attention",
       .says =
           "grouped-query attention with RoPE, optional q/k norm and output gate; heads are cut",
       .formula = "softmax(q k^T / sqrt(d), causal) v",
       .shown_by = "norm/qk_layernorm"},
      {.kind = "layer",
       .word = "multi_latent_attention",
       .says = "queries, keys and values from low-rank latents, and one rotary key for all heads; "
               "heads "
               "are cut. Without a gather over the sequence nobody sums the rotary key's gradient",
       .formula = "[l | r] = x W_down^T; k = [norm(l) W_k^T | rope(r)], v = norm(l) W_v^T",
       .shown_by = "mla/rotary_key_unsummed"},
      {.kind = "layer",
       .word = "linear_attention",
       .says =
           "GatedDeltaNet: convolution, decay and write strength per value head, the delta rule, "
           "a gated norm; heads are cut",
       .formula = "S_t = exp(g_t) S_(t-1) (I - beta_t k_t k_t^T) + beta_t v_t k_t^T; o_t = S_t q_t",
       .shown_by = "gdn/upstream"},
      {.kind = "layer",
       .word = "shared_expert",
       .says = "the MLP that every token takes, with a gate on the rank's own tokens; under "
               "overlap its "
               "linears do not communicate, and replicated factors hold own features' terms",
       .formula = "y = mlp(x) sigmoid(x g)",
       .shown_by = "moe/shared_expert_overlap"},
      {.kind = "layer",
       .word = "gather_region",
       .says = "the sequence is gathered before in_proj and sequence parallelism turned off on the "
               "projections for the call: gradients inside are complete",
       .shown_by = "gdn/gamma_flagged"},
  };
}

std::vector<GlossaryEntry> VocabularyEntries() {
  return {
      {.kind = "layer",
       .word = "embedding",
       .says = "rows of the vocabulary are cut; a rank looks up its own range and the terms are "
               "summed"},
      {.kind = "layer",
       .word = "output_layer",
       .says = "columns of the vocabulary are cut; the loss takes maximum, sum of exponentials and "
               "target logit over the ranks"},
  };
}

}  // namespace

std::vector<GlossaryEntry> GlossaryOfModels() {
  std::vector<GlossaryEntry> entries = MarkEntries();
  for (std::vector<GlossaryEntry> part : {LayerEntries(), MixerEntries(), VocabularyEntries()}) {
    for (GlossaryEntry& entry : part) entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace sumonce

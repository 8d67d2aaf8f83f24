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
       .cure = "set it on a replicated parameter that sees its rank's tokens, features or heads; "
               "clear it where the gradient is complete or a shard",
       .shown_by = "lora/row_flag_missing"},
      {.kind = "mark",
       .word = "average_gradients_across_tp_domain",
       .says = "finalizers average the gradient over tp; wins over sequence_parallel, and does "
               "nothing to equal copies",
       .formula = "f = (sum over tp of g) / tp",
       .cure = "clear it where ranks hold terms; sequence_parallel then sums them",
       .shown_by = "lora/averaged_partial"},
      {.kind = "mark",
       .word = "tensor_model_parallel",
       .says = "the parameter is cut over tp along partition_dim: norms count every rank's part",
       .formula = "N^2 = sum over ranks k that are marked, or first of tp, of |f_k|^2",
       .cure = "set it on what is cut over tp, clear it on copies",
       .shown_by = "clip/replica_counted_tp_times"},
      {.kind = "mark",
       .word = "allreduce",
       .says =
           "the data-parallel sum takes the dense group (dp with cp); cleared, the experts' (edp)",
       .formula = "f = sum over dp of g; cleared: f = sum over edp of g",
       .cure = "clear it on experts, and on nothing else",
       .shown_by = "moe/expert_group_replica"},
      {.kind = "mark",
       .word = "shared",
       .says = "a copy on another pipeline stage exists: norms count it once",
       .formula = "N^2 leaves |f|^2 of a shared copy out",
       .cure = "set it on the last stage's copy of a tied embedding alone"},
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
       .cure = "mark the fused norm's weight and a replicated lora_A (sequence_parallel)",
       .shown_by = "lora/column_flag_missing"},
      {.kind = "layer",
       .word = "linear_proj",
       .says =
           "row-parallel: columns of W are cut; terms of y are summed, or reduce-scattered under "
           "sequence parallelism",
       .formula = "y = sum over k of x_k W_k^T",
       .cure = "mark a replicated lora_B and the bias (sequence_parallel)",
       .shown_by = "lora/row_flag_missing"},
      {.kind = "layer",
       .word = "position_embeddings",
       .says =
           "a learned table, a copy on every rank, added to the words' embedding before the sum is "
           "scattered over the sequence: its gradient is complete on every rank",
       .formula = "y = word[token] + position[t]",
       .cure = "leave it without marks: its gradient is complete",
       .shown_by = "gpt/position_embedding_flagged"},
      {.kind = "layer",
       .word = "bias",
       .says =
           "of a column-parallel linear cut with the rows of W; of a row-parallel one a copy on "
           "every rank, added behind the sum, on the rank's own tokens under sequence parallelism",
       .formula = "y = x W^T + b",
       .cure =
           "mark that of a row-parallel linear; add it behind the sum, or a tp-th of it in front",
       .shown_by = "gpt/row_bias_flag_missing"},
      {.kind = "layer",
       .word = "linear_fc1",
       .says = "column-parallel, gate and up projections in one matrix",
       .formula = "y = norm(x) [W_gate; W_up]^T",
       .cure = "mark the fused norm's weight and a replicated lora_A (sequence_parallel)",
       .shown_by = "lora/all_targets"},
      {.kind = "layer",
       .word = "linear_fc2",
       .says = "row-parallel, after the activation",
       .formula = "y = act(fc1) W^T; act: silu(gate) * up, gelu, its tanh form, or max(x, 0)^2",
       .cure = "mark a replicated lora_B (sequence_parallel)",
       .shown_by = "lora/all_targets"},
      {.kind = "layer",
       .word = "lora",
       .says =
           "the factor beside the cut is replicated: lora_A of a column target, lora_B of a row "
           "target; the other is cut with the weight",
       .formula = "y += (alpha / r) B (A x)",
       .cure = "mark the replicated factor where it sees its rank's tokens, the cut one never",
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
       .cure =
           "sum the q and k norms' gradients over tp: by their names (qk_layernorm on) or a mark",
       .shown_by = "norm/qk_layernorm"},
      {.kind = "layer",
       .word = "multi_latent_attention",
       .says = "queries, keys and values from low-rank latents, and one rotary key for all heads; "
               "heads "
               "are cut. Without a gather over the sequence nobody sums the rotary key's gradient",
       .formula = "[l | r] = x W_down^T; k = [norm(l) W_k^T | rope(r)], v = norm(l) W_v^T",
       .cure = "sum the rotary key's gradient over tp in backward",
       .shown_by = "mla/rotary_key_unsummed"},
      {.kind = "layer",
       .word = "linear_attention",
       .says =
           "GatedDeltaNet: convolution, decay and write strength per value head, the delta rule, "
           "a gated norm; heads are cut",
       .formula = "S_t = exp(g_t) S_(t-1) (I - beta_t k_t k_t^T) + beta_t v_t k_t^T; o_t = S_t q_t",
       .cure =
           "sum out_norm's gradient over tp: mark it, or add a rule without sequence parallelism",
       .shown_by = "gdn/upstream"},
      {.kind = "layer",
       .word = "shared_expert",
       .says = "the MLP that every token takes, with a gate on the rank's own tokens; under "
               "overlap its "
               "linears do not communicate, and replicated factors hold own features' terms",
       .formula = "y = mlp(x) sigmoid(x g)",
       .cure = "mark the gate and the replicated factors, no factor that is cut",
       .shown_by = "moe/shared_expert_overlap"},
      {.kind = "layer",
       .word = "gather_region",
       .says = "the sequence is gathered before in_proj and sequence parallelism turned off on the "
               "projections for the call: gradients inside are complete",
       .formula = "x = gather(x_k); y_k = slice k of f(x)",
       .cure = "clear the marks of what is inside, and leave them off until the finalizer has run",
       .shown_by = "gdn/gamma_flagged"},
  };
}

std::vector<GlossaryEntry> NormEntries() {
  return {
      {.kind = "layer",
       .word = "layernorm",
       .says = "RMSNorm, plain (w) or zero-centred (1 + w), by itself or fused in front of a "
               "column-parallel linear; its weight is a copy on every rank, a term on own tokens "
               "and complete on all",
       .formula = "y = w x / sqrt(mean(x^2) + eps)",
       .cure = "mark it where it sees its rank's tokens (sequence_parallel), and only there",
       .shown_by = "norm/final_flag_missing"},
      {.kind = "layer",
       .word = "q_layernorm",
       .says = "q_layernorm and k_layernorm: one weight for all heads, of which each rank has its "
               "own: a term on every rank, whatever sequence parallelism says",
       .formula = "q_h = w q_h / sqrt(mean(q_h^2) + eps)",
       .cure = "sum them over tp: by their names (qk_layernorm on) or a mark",
       .shown_by = "norm/qk_layernorm_switch_off"},
      {.kind = "layer",
       .word = "out_norm",
       .says = "GatedDeltaNet's gated norm: one weight for all value heads, of which each rank has "
               "its own: a term on every rank",
       .formula = "y = w o / sqrt(mean(o^2) + eps) silu(z)",
       .cure = "mark it, or add a rule without sequence parallelism",
       .shown_by = "gdn/out_norm_unflagged"},
  };
}

std::vector<GlossaryEntry> BlockEntries() {
  return {
      {.kind = "layer",
       .word = "in_proj",
       .says = "GatedDeltaNet's column-parallel projection of queries, keys, values, gate, write "
               "strength and decay, with a fused norm; packed per key head, per rank or flat, or "
               "decoupled in two",
       .formula = "[q k v z b a] = norm(x) W^T",
       .cure = "mark the fused norm's weight and a replicated lora_A, but not in a gather region",
       .shown_by = "gdn/per_key_head_packing"},
      {.kind = "layer",
       .word = "out_proj",
       .says = "GatedDeltaNet's row-parallel projection back to the hidden dimension",
       .formula = "y = sum over k of o_k W_k^T",
       .cure = "mark a replicated lora_B, but not in a gather region",
       .shown_by = "gdn/lora_in_region"},
      {.kind = "layer",
       .word = "decoder",
       .says = "the layers one behind the other, each a mixer and an MLP on a residual stream, "
               "between word embeddings and a final norm",
       .formula = "x += mixer(norm(x)); x += mlp(norm(x))",
       .cure = "what arrives wrong at one branch is wrong in all below: cure the operation named",
       .shown_by = "upstream/gather_split_backward"},
      {.kind = "layer",
       .word = "replica",
       .says =
           "a whole layer on every rank over the whole sequence, as a framework's plain module: "
           "complete if its output is scattered, an equal share if it is reduce-scattered and "
           "divided by tp",
       .formula = "y_k = slice k of f(x), or slice k of (sum over ranks of f(x)) / tp",
       .cure = "sum equal shares; leave complete gradients, or average them",
       .shown_by = "replica/divided"},
  };
}

std::vector<GlossaryEntry> VocabularyEntries() {
  return {
      {.kind = "layer",
       .word = "embedding",
       .says = "rows of the vocabulary are cut; a rank looks up its own range and the terms are "
               "summed",
       .formula = "y = sum over k of W_k[token - first_k], 0 outside its range",
       .cure = "leave it without marks; behind a division by tp its gradient needs times tp",
       .shown_by = "replica/word_embedding_scattered"},
      {.kind = "layer",
       .word = "output_layer",
       .says = "columns of the vocabulary are cut; the loss takes maximum, sum of exponentials and "
               "target logit over the ranks",
       .formula = "loss = log sum over k of sum exp(x W_k^T) - x W[target]",
       .cure = "leave it without marks; tie it to the embedding by one parameter",
       .shown_by = "norm/final_flag_missing"},
  };
}

}  // namespace

std::vector<GlossaryEntry> GlossaryOfModels() {
  std::vector<GlossaryEntry> entries = MarkEntries();
  for (std::vector<GlossaryEntry> part :
       {LayerEntries(), NormEntries(), MixerEntries(), BlockEntries(), VocabularyEntries()}) {
    for (GlossaryEntry& entry : part) entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace sumonce

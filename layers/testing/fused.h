// Hugging Face's separate projections as Megatron's fused ones, for golden files: each projection's
// rows have a place in the fused weight. Separate adapters become one, block by block: the fused A
// stacks the A's, the fused B holds each B at its own rows and ranks, zero elsewhere; a module with
// fewer ranks than the widest has zero rows and columns left over. Off the blocks the fused B has
// gradients that the separate adapters do not have; they are not compared.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "layers/attention/self_attention.h"
#include "layers/gated_delta_net/gated_delta_net.h"
#include "layers/mlp/mlp.h"
#include "layers/testing/run.h"
#include "tests/golden.h"

namespace sumonce::testing {

struct Projection {
  std::string golden;         // "param.self_attn.q_proj", with or without ".weight" and adapters
  std::vector<int64_t> rows;  // its row i is row rows[i] of the fused weight
};

struct FusedLinear {
  std::string module;  // ours: "self_attention.linear_qkv"
  std::vector<Projection> projections;
};

// How a layer's parameters are called and packed in a golden file.
struct Correspondence {
  std::vector<FusedLinear> linears;
  std::vector<std::pair<std::string, std::string>> plain;  // ours, golden's: same packing
  void Append(const Correspondence& other);
};

// `module` and `golden` are prefixes with their dots: "self_attention.", "param.self_attn.".
Correspondence AttentionNames(const SelfAttentionConfig& config, const std::string& module,
                              const std::string& golden);
// GatedDeltaNet in packing kMegatron from the flat form (in_proj_qkv, _z, _b, _a).
Correspondence FlatGdnNames(const GatedDeltaNetConfig& config, const std::string& module,
                            const std::string& golden);
Correspondence MlpNames(const MlpConfig& config, const std::string& module,
                        const std::string& golden);

// The rank that every fused adapter then has: the most that one module needs; 0 without adapters.
// LoRA of rank `r` on the six linears of a hybrid block; r = 0: none.
LoraConfig LoraOnAllTargets(int64_t r);
int64_t FusedRank(const Golden& golden, const Correspondence& names);
Weights LoadWeights(const Golden& golden, const Correspondence& names);
// `gradient`: whole, by our name.
void ExpectGradients(const Golden& golden, const Correspondence& names,
                     const std::function<Tensor(const std::string&)>& gradient);

// y, the gradient of x and those of all parameters of a layer, against a file of [b, t, ...].
void ExpectMatchesGolden(const Golden& golden, const Correspondence& names, const Outcome& outcome);

// [...] of ids as [..., classes] with a one at each id.
Tensor OneHot(const Tensor& ids, int64_t classes);

// What a rank starts from: its input and parameters (pairs of our name and the file's behind
// "tp0."), and the upstream gradient of `y` where the file has it. `axes`: of activations.
void ExpectRanksHold(const Golden& golden, const Outcome& outcome,
                     const std::vector<std::pair<std::string, std::string>>& names,
                     const std::string& y, const Axes& axes);

// A file's [b, t, n] as [s, b, last].
Tensor Activation(const Golden& golden, const std::string& name, Dim last);

// 0, 1, ... count-1, from `first`.
std::vector<int64_t> Range(int64_t first, int64_t count);
Tensor Matrix(const Golden& golden, const std::string& name);  // as stored, [o, i]
// Row i of the result is row rows[i] of `from`.
Tensor GatherRows(const Tensor& from, const std::vector<int64_t>& rows);

}  // namespace sumonce::testing

#include "report/describe.h"
#include "report/glossary.h"

namespace sumonce {
namespace {

struct MechanismEntry {
  Mechanism mechanism;
  const char* formula;
  const char* cure;
  const char* shown_by;
};

// n: the group's size; g_k: what rank k holds before the finalizer, f_k after it; G: the reference.
constexpr MechanismEntry kMechanisms[] = {
    {Mechanism::kMissingSum, "f_k = g_k, and sum over k of g_k = G",
     "mark the parameter (sequence_parallel), or add a rule that sums it", "lora/row_flag_missing"},
    {Mechanism::kDoubleSum, "g_k = G on every rank, f_k = sum of them = n G",
     "clear the mark, or average instead: the average of equal copies is the copy",
     "gdn/gamma_flagged"},
    {Mechanism::kAveraged, "sum over k of g_k = G, f_k = G / n",
     "clear average_gradients_across_tp_domain; the sum's mark takes over",
     "lora/averaged_partial"},
    {Mechanism::kUnsummedShare, "g_k = G / n on every rank, f_k = g_k",
     "mark the parameter, or do not divide by the group's size", "replica/divided"},
    {Mechanism::kMixedShards, "f_k = sum over j of slice j, in place of slice k",
     "clear the mark: a sharded parameter needs no sum", "lora/mark_on_shard"},
    {Mechanism::kWrongScale, "f_k = a G on every rank, a no power of n",
     "find the factor: 1/num_tokens applied twice or never, a loss scale, a wrong divisor",
     "accumulation/scaled_everywhere"},
    {Mechanism::kMixedUse, "g_k = G_1 + t_k with sum over k of t_k = G_2: f = G has no single map",
     "make the uses alike in the model: no action of the finalizer is right", "norm/mixed_use"},
    {Mechanism::kWrongGroup, "f_k = sum over another group than the one that holds the terms",
     "reduce over the group named, or move the parameter to its buffer", "dp/wrong_group"},
    {Mechanism::kLostContribution, "f_k = G minus a term, or plus one that was counted twice",
     "look at accumulation: a microbatch, a use or a rank's buffer",
     "accumulation/lost_microbatch"},
    {Mechanism::kStale, "f_k(step) = G(step) + a term of G(step - 1)",
     "zero the gradient buffer before the step", "accumulation/stale_buffer"},
    {Mechanism::kUpstream, "sum over k of g_k is no multiple of G before any finalizer",
     "mend the operation named: all parameters below it inherit the fault",
     "upstream/gather_split_backward"},
    {Mechanism::kLocalGradient, "g_k is wrong on some rank, and right on others",
     "look at that rank's kernels and buffers", "accumulation/scaled_on_one_rank"},
    {Mechanism::kWrongShard, "f_k = the entries of slice k in another order",
     "slice and assemble by one packing", "accumulation/permuted_shard"},
    {Mechanism::kReplicaDrift, "copies of one parameter differ after a step",
     "cure what made their gradients differ", "lora/pr_173_100_steps"},
    {Mechanism::kNormMiscount,
     "N^2 = sum over ranks and parameters of c |f_k|^2, with c = 1 on more than one rank of a "
     "copy, "
     "or on fewer than all of a shard",
     "mark tensor_model_parallel what is cut over tp, and nothing else",
     "clip/replica_counted_tp_times"},
    {Mechanism::kExportDiffers, "the exported tensor is one rank's copy, and the copies differ",
     "cure the drift; an export cannot repair it", "lora/pr_173"},
    {Mechanism::kCollectiveMismatch, "two ranks of a group made different calls",
     "make the lists of all ranks equal: marks, then names and shapes", "hang/collective_mismatch"},
    {Mechanism::kDeadlock, "every rank waits for another", "find the call that one rank skips",
     "hang/skipped_collective"},
    {Mechanism::kRankLost, "a rank ended while others waited for it", "look at that rank's log",
     "transport/killed_rank"},
    {Mechanism::kNondeterministic,
     "two runs of one seed differ: fl(fl(a + b) + c) and fl(a + fl(b + c)) are two numbers",
     "fix the order of sums, or compare within the bound of --native-sums",
     "transport/unordered_sum"},
    {Mechanism::kNotFinite, "an entry is infinite or not a number",
     "look at the loss scale and at the operation where it first appears", "accumulation/overflow"},
};

}  // namespace

std::vector<GlossaryEntry> GlossaryOfVerdicts() {
  std::vector<GlossaryEntry> entries = {
      {.kind = "verdict",
       .word = std::string(Name(Outcome::kRight)),
       .says = "the finalized gradient is the reference's, on every rank",
       .formula = "|f_k - G| within the bound of the sums' rounding",
       .shown_by = "lora/all_targets"},
      {.kind = "verdict",
       .word = std::string(Name(Outcome::kWrong)),
       .says = "it is not; the mechanism says how",
       .formula = "|f_k - G| beyond the bound of the sums' rounding on some rank k",
       .cure = "the mechanism's; the runner tries it before it prints it",
       .shown_by = "lora/row_flag_missing"},
      {.kind = "verdict",
       .word = std::string(Name(Outcome::kNoStatement)),
       .says = "nothing is claimed: a layout or scale is lost at the operation named",
       .formula = "state of f: lost, at an operation",
       .cure = "describe the operation to the prover, or look at the numbers",
       .shown_by = "upstream/gather_split_backward"},
      {.kind = "verdict",
       .word = std::string(Name(Outcome::kNoEvidence)),
       .says = "the numbers are zero everywhere and cannot tell; the proof decides",
       .formula = "f_k = G = 0 on every rank k",
       .cure =
           "start where the gradient is not zero: lora_B other than 0, unmasked tokens on every "
           "rank",
       .shown_by = "lora/zero_B"},
  };
  for (const MechanismEntry& entry : kMechanisms) {
    entries.push_back({.kind = "mechanism",
                       .word = std::string(Name(entry.mechanism)),
                       .says = std::string(Meaning(entry.mechanism)),
                       .formula = entry.formula,
                       .cure = entry.cure,
                       .shown_by = entry.shown_by});
  }
  return entries;
}

}  // namespace sumonce

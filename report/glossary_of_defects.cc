// What can be broken on purpose (proto/defect.proto), and the words of a proof.
#include <utility>

#include "report/glossary.h"

namespace sumonce {
namespace {

GlossaryEntry DefectWord(const char* word, const char* says, const char* shown_by) {
  return {.kind = "defect", .word = word, .says = says, .shown_by = shown_by};
}

std::vector<GlossaryEntry> DefectEntries() {
  return {
      DefectWord("set_mark", "sets a mark on parameters, at build, during a call or after backward",
                 "lora/mark_on_shard"),
      DefectWord("clear_mark", "takes a mark away, at build, during a call or after backward",
                 "lora/row_flag_missing"),
      DefectWord("drop_rule", "a rule of the finalizer claims its parameters and does nothing",
                 "dp/sum_dropped"),
      DefectWord("repeat_rule", "a rule of the finalizer acts twice", "dp/sum_repeated"),
      DefectWord("average_rule", "a rule of the finalizer averages where it summed",
                 "dp/sum_averaged"),
      DefectWord("wrong_group", "a rule of the finalizer reduces over another group",
                 "dp/wrong_group"),
      DefectWord("collective", "one direction of one communication of the model is another map",
                 "upstream/gather_split_backward"),
      DefectWord("lose_microbatch", "one microbatch's share of a gradient is not accumulated",
                 "accumulation/lost_microbatch"),
      DefectWord("repeat_microbatch", "one microbatch's share of a gradient is accumulated twice",
                 "accumulation/repeated_microbatch"),
      DefectWord("stale_buffer", "a gradient buffer is not zeroed after the first step",
                 "accumulation/stale_buffer"),
      DefectWord("permute_shard", "rows of a rank's local gradient stand in other places",
                 "accumulation/permuted_shard"),
      DefectWord("scale_gradient", "a rank's backward scales a gradient by a factor",
                 "accumulation/scaled_everywhere"),
      DefectWord("region_marks", "what a gather region does with the marks of what is inside",
                 "gdn/gamma_toggled_and_restored"),
      DefectWord("communication",
                 "a call of some ranks goes wrong on its way: one of the faults below",
                 "transport/flipped_bit"),
  };
}

GlossaryEntry FaultWord(const char* word, const char* says, const char* shown_by) {
  return {.kind = "fault", .word = word, .says = says, .shown_by = shown_by};
}

std::vector<GlossaryEntry> FaultEntries() {
  return {
      FaultWord("LATE", "the call starts late; no result may depend on it", "transport/late_rank"),
      FaultWord("STALE_BUFFER", "the rank sends what it sent in the call before",
                "transport/stale_contribution"),
      FaultWord("SWAPPED_BUFFER", "two ranges of elements are sent in each other's places",
                "transport/swapped_buffer"),
      FaultWord("DROPPED_CONTRIBUTION", "the rank sends zeros", "transport/dropped_contribution"),
      FaultWord("DOUBLED_CONTRIBUTION", "the rank sends twice its values",
                "transport/doubled_contribution"),
      FaultWord("FLIPPED_BIT", "one bit of what is sent is flipped", "transport/flipped_bit"),
      FaultWord("REORDERED", "the call is made after the rank's next one",
                "transport/reordered_calls"),
      FaultWord("KILLED", "the rank ends at the call", "transport/killed_rank"),
      FaultWord("UNORDERED", "the rank's term of the sum is added when it comes, not in its turn",
                "transport/unordered_sum"),
  };
}

// n: the group's size, G: the reference's tensor.
std::vector<GlossaryEntry> ProofEntries() {
  return {
      {.kind = "class",
       .word = "partial",
       .says = "a gradient before the finalizer of which each rank holds a term: it needs a sum",
       .formula = "sum over k of g_k = G",
       .shown_by = "lora/row_flag_missing"},
      {.kind = "class",
       .word = "complete",
       .says = "a gradient before the finalizer that every rank holds whole: it needs nothing",
       .formula = "g_k = G",
       .shown_by = "gdn/gamma_flagged"},
      {.kind = "class",
       .word = "equal share",
       .says = "every rank holds the same n-th part: it needs a sum, and the numbers of one rank "
               "look like a complete gradient's",
       .formula = "g_k = G / n",
       .shown_by = "replica/divided"},
      {.kind = "class",
       .word = "shard",
       .says = "every rank holds its slice of the parameter and the whole gradient of it",
       .formula = "g_k = slice k of G",
       .shown_by = "lora/mark_on_shard"},
      {.kind = "class",
       .word = "mixture",
       .says = "sums of different slices: nothing makes a gradient of it",
       .formula = "f = sum over k of slice k",
       .shown_by = "lora/mark_on_shard"},
      {.kind = "state",
       .word = "E",
       .says = "along an axis: every rank holds the same, the reference's up to the factor printed",
       .formula = "x_k = lambda X",
       .shown_by = "gdn/gamma_flagged"},
      {.kind = "state",
       .word = "S",
       .says = "along an axis: rank k holds slice k, cut along the dimension in brackets",
       .formula = "x_k = lambda (slice k of X)",
       .shown_by = "lora/mark_on_shard"},
      {.kind = "state",
       .word = "P",
       .says =
           "along an axis: each rank holds a term; in brackets the dimension whose cut made it so",
       .formula = "sum over k of x_k = lambda X",
       .shown_by = "lora/row_flag_missing"},
      {.kind = "state",
       .word = "M",
       .says = "along an axis: each rank holds the sum of all slices, of which nothing can be made",
       .formula = "x_k = lambda (sum over j of slice j of X)",
       .shown_by = "lora/mark_on_shard"},
      {.kind = "figure",
       .word = "coefficient",
       .says =
           "what the finalized gradient is a multiple of the reference's by: a product of group "
           "sizes such as tp or 1/tp; \"none: per rank\", \"none: a mixture\" where it is none",
       .formula = "f = coefficient * G",
       .shown_by = "gdn/gamma_flagged"},
  };
}

}  // namespace

std::vector<GlossaryEntry> GlossaryOfDefects() {
  std::vector<GlossaryEntry> entries = ProofEntries();
  for (std::vector<GlossaryEntry> part : {DefectEntries(), FaultEntries()}) {
    for (GlossaryEntry& entry : part) entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace sumonce

// What a rank says to its peers in one training step, from the structure alone: no numbers run, so
// it is as quick at a real model's size. The difference between two runs is what a cure costs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "sim/scenario.h"

namespace sumonce {

enum class StepPhase : uint8_t { kForward, kBackward, kFinalizer, kOptimizer };
std::string_view Name(StepPhase phase);  // "forward", ...

// The calls of one phase that are alike but for their size.
struct TrafficLine {
  StepPhase phase = StepPhase::kForward;
  CallKind call = CallKind::kAllReduce;
  std::string group;  // "tp"
  int ranks = 1;      // in the group
  // Of each call, in order; as nccl-tests counts: of an AllGather the result, of a ReduceScatter
  // the input, of the others the buffer.
  std::vector<int64_t> elements;
};

// Of one rank in one step of the scenario with these edits: a line per phase, call and group. Where
// the edits leave a value whose layout nobody knows, its calls are counted with the size of the
// last layout that was known.
std::vector<TrafficLine> TrafficOf(const Scenario& scenario, std::span<const Edit> edits);

// One list of the finalizer: what travels in one buffer where lists are coalesced.
struct FinalizerCall {
  std::string rule;
  std::string group;
  int ranks = 1;
  std::vector<std::string> params;
  std::vector<int64_t> elements;  // of each, on one rank
};
// Lists whose group has one rank, and those that claim nothing, make no call.
std::vector<FinalizerCall> FinalizerCalls(const Scenario& scenario, std::span<const Edit> edits);

// How a list travels. Megatron-Core coalesces it into one buffer; DDP cuts the buffer into buckets;
// a call for each parameter is what a fix by hand often makes.
enum class Bucketing : uint8_t { kCoalesced, kPerParameter, kBucketed };
std::string_view Name(Bucketing bucketing);  // "coalesced", "per_parameter", "bucketed"

// Elements of each call. A bucket closes once it holds `bucket_elements` or more (Megatron-Core's
// default bucket_size is 40,000,000).
std::vector<int64_t> CallSizes(const FinalizerCall& call, Bucketing bucketing,
                               int64_t bucket_elements = 40'000'000);

}  // namespace sumonce

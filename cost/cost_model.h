// What a collective costs, as a function of ranks and bytes: latency times steps plus time per byte
// times the bytes that a rank sends, in the terms of an algorithm (ring, tree, two levels), fitted
// to measurements.
//
// `bytes` is nccl-tests' size: of an AllReduce the buffer, of an AllGather the result, of a
// ReduceScatter the input. Steps and wire bytes per rank are those of Thakur, Rabenseifner and
// Gropp, "Optimization of collective communication operations in MPICH" (2005): a ring all-reduce
// has 2(n-1) steps and sends 2(n-1)/n of the buffer, a pipelined tree 2 ceil(log2 n) steps and
// twice the buffer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/communicator.h"

namespace sumonce {

// One measurement.
struct CostPoint {
  int ranks = 2;
  int64_t bytes = 0;
  double seconds = 0;  // the median of one call's time
};

enum class CostAlgorithm : uint8_t { kRing, kTree };
std::string_view Name(CostAlgorithm algorithm);  // "ring", "tree"

// Of one call over `ranks` ranks. Not for Send, Recv, Barrier and Split.
double Steps(CallKind call, CostAlgorithm algorithm, int ranks);
double WireBytesPerByte(CallKind call, CostAlgorithm algorithm, int ranks);

// A link between ranks. Time per byte may depend on the message's size: caches and protocols make
// it so. `knots` are the sizes where it changes; seconds_per_byte has one entry more.
struct LinkCost {
  double seconds_per_step = 0;
  std::vector<int64_t> knots;
  std::vector<double> seconds_per_byte;

  // The cost of `wire` times a message's bytes.
  double Transfer(double wire, int64_t bytes) const;
};

struct CostModel {
  CallKind call = CallKind::kAllReduce;
  CostAlgorithm algorithm = CostAlgorithm::kRing;
  LinkCost link;
  // Two levels: groups of `node_ranks` ranks over `link`, and between them slices over `between`.
  // 0: one level.
  int node_ranks = 0;
  LinkCost between;

  std::vector<int> ranks;   // what was measured
  int64_t least_bytes = 0;  //
  int64_t most_bytes = 0;   //
  double residual = 0;      // median |predicted / measured - 1| of the points
  double bar = 0;           // nine of ten points that are left out of a fit lie within
  double rank_error = -1;   // the same of whole rank counts left out; -1: too few
};

struct CostEstimate {
  double seconds = 0;
  double low = 0;
  double high = 0;
  bool extrapolated = false;  // to ranks or bytes outside the measured range
};

// Relative least squares; the algorithm and the number of knots (up to two) by the error on points
// left out. InvalidArgument: fewer than four sizes, a point without time or with one rank.
absl::StatusOr<CostModel> FitCostModel(CallKind call, std::vector<CostPoint> points);

// `ranks` of 1 cost nothing. The bar widens with the error of left-out rank counts where the ranks
// were not measured.
CostEstimate Predict(const CostModel& model, int ranks, int64_t bytes);

// The same model with a second level: `node_ranks` ranks over the measured link, nodes joined by a
// link of the given latency and bandwidth (bytes per second and rank).
CostModel WithNodes(CostModel model, int node_ranks, double latency_seconds, double bandwidth);

}  // namespace sumonce

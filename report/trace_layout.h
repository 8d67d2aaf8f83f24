// Where the calls of a run lie in a trace: a track per rank and group, and arrows between the parts
// of one call. Plain data, from which report/chrome_trace.cc writes.
#pragma once

#include <string>
#include <vector>

#include "comm/recording.h"

namespace sumonce {

// Slices on one track never overlap: calls of one group that were in flight at once lie on further
// tracks of it.
struct TraceSlice {
  int rank = 0;   // world rank
  int track = 0;  // index into TraceLayout::tracks[rank]
  const RecordedCall* call = nullptr;
};

// A place inside a slice, on its rank and track.
struct FlowPoint {
  int rank = 0;
  int track = 0;
  double at_us = 0;
};

// The parts of one collective in the order in which they began, or a Send and its Recv: from the
// begin of the one to the end of the other. Two points at least.
struct TraceFlow {
  std::string name;  // "AllReduce"
  std::vector<FlowPoint> points;
};

struct TraceLayout {
  std::vector<std::vector<std::string>> tracks;  // by rank: "tp [0 1]", "tp [0 1] #2"
  std::vector<TraceSlice> slices;                // by rank, in the order of their begins
  std::vector<TraceFlow> flows;
  double end_us = 0;
};

// `ranks` outlives the layout. Parts that were not kept, or refused, have no arrow.
TraceLayout LayOut(const std::vector<RankCalls>& ranks);

// Of a slice: at least a nanosecond, as a viewer drops what has none.
double DurationOf(const RecordedCall& call);

}  // namespace sumonce

// Gloo as a peer of the all-reduce benchmark: ranks are threads of this process that talk over TCP
// on the loopback device. Where Gloo is not installed, gloo_peer_absent.cc takes its place.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace sumonce::bench {

// Sums `count` float32 in place over the ranks. Collective; throws what Gloo throws.
using GlooAllReduce = std::function<void(float* data, int64_t count)>;

bool HasGloo();
// Runs body(rank, all_reduce) on one thread per rank. What a rank's body or Gloo threw comes back
// as text; empty if nothing did.
std::string RunGloo(int ranks, const std::function<void(int rank, const GlooAllReduce&)>& body);

}  // namespace sumonce::bench

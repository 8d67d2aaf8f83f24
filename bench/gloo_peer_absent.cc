#include "bench/gloo_peer.h"

namespace sumonce::bench {

bool HasGloo() { return false; }

std::string RunGloo(int, const std::function<void(int, const GlooAllReduce&)>&) {
  return "this build has no Gloo (Debian: libgloo-dev)";
}

}  // namespace sumonce::bench

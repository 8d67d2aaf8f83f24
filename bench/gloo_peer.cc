#include "bench/gloo_peer.h"

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <memory>
#include <mutex>

#include "bench/rank_threads.h"

namespace sumonce::bench {
namespace {

void RunRank(gloo::rendezvous::HashStore& store, int rank, int ranks,
             const std::function<void(int, const GlooAllReduce&)>& body) {
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  const auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  uint32_t tag = 0;
  body(rank, [&](float* data, int64_t count) {
    gloo::AllreduceOptions options(context);
    options.setOutput(data, count);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    options.setTag(tag++);
    gloo::allreduce(options);
  });
}

}  // namespace

bool HasGloo() { return true; }

std::string RunGloo(int ranks, const std::function<void(int, const GlooAllReduce&)>& body) {
  gloo::rendezvous::HashStore store;
  std::mutex mutex;
  std::string error;
  RunRankThreads(ranks, [&](int rank) {
    try {
      RunRank(store, rank, ranks, body);
    } catch (const std::exception& thrown) {
      const std::lock_guard<std::mutex> lock(mutex);
      error = thrown.what();
    }
  });
  return error;
}

}  // namespace sumonce::bench

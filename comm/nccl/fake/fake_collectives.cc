// How the fake's collectives find each other, and what they do.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/nccl/fake/fake_state.h"
#include "comm/reduce.h"

namespace sumonce::nccl {
namespace {

using Kind = FakePart::Kind;

bool IsCollective(const FakePart& part) {
  return part.kind != Kind::kSend && part.kind != Kind::kRecv;
}

int64_t BytesOf(NcclDataType type) {
  if (type == kNcclUint8) return 1;
  if (type == kNcclBfloat16) return 2;
  return type == kNcclInt32 || type == kNcclFloat32 ? 4 : 8;
}

DType DTypeOf(NcclDataType type) {
  switch (type) {
    case kNcclInt32:
      return DType::kInt32;
    case kNcclInt64:
      return DType::kInt64;
    case kNcclFloat32:
      return DType::kFloat32;
    case kNcclFloat64:
      return DType::kFloat64;
    case kNcclBfloat16:
      return DType::kBFloat16;
    case kNcclUint8:
      break;
  }
  return DType::kUint8;
}

ReduceOp OpOf(NcclRedOp op) {
  if (op == kNcclMax) return ReduceOp::kMax;
  return op == kNcclAvg ? ReduceOp::kAvg : ReduceOp::kSum;
}

bool Same(const FakePart& a, const FakePart& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.op == b.op &&
         (a.kind != Kind::kBroadcast || a.peer == b.peer);
}

// From the last rank down: NCCL promises no order, and this one is as good as any that is not ours.
void ReduceBackwards(const FakePart& part, std::vector<const void*> in, std::vector<void*> out) {
  std::reverse(in.begin(), in.end());
  ReduceInRankOrder(DTypeOf(part.type), OpOf(part.op), in, static_cast<int64_t>(part.count), out);
}

}  // namespace

void FakeState::Enqueue(const std::shared_ptr<FakeKernel>& kernel) {
  FakeComm& comm = *kernel->comm;
  FakeClique& clique = *comm.clique;
  FakeOperation operation{.kernel = kernel};
  for (size_t k = 0; k < kernel->parts.size(); ++k) {
    FakePart& part = kernel->parts[k];
    const bool sends = part.kind == Kind::kSend;
    if (IsCollective(part)) {
      part.number = comm.collectives++;
      clique.collectives[{comm.rank, part.number}] = {kernel, k};
    } else {
      part.number = comm.messages[{sends, part.peer}]++;
      const std::pair<int, int> route =
          sends ? std::pair(comm.rank, part.peer) : std::pair(part.peer, comm.rank);
      (sends ? clique.sends : clique.receives)[{route, part.number}] = {kernel, k};
    }
    for (const void* used : {part.in, static_cast<const void*>(part.out)}) {
      if (used != nullptr) operation.uses.push_back(used);
    }
  }
  kernel->stream->queue.push_back(std::move(operation));
}

bool FakeState::Closure(const std::shared_ptr<FakeKernel>& kernel,
                        std::vector<std::shared_ptr<FakeKernel>>& all) const {
  all = {kernel};
  for (size_t next = 0; next < all.size(); ++next) {
    const FakeKernel& current = *all[next];
    const FakeClique& clique = *current.comm->clique;
    const int rank = current.comm->rank;
    const auto add = [&all](const auto& places, const auto& key) {
      const auto place = places.find(key);
      if (place == places.end()) return false;
      if (std::find(all.begin(), all.end(), place->second.kernel) == all.end())
        all.push_back(place->second.kernel);
      return true;
    };
    for (const FakePart& part : current.parts) {
      if (IsCollective(part)) {
        for (int peer = 0; peer < static_cast<int>(clique.ranks.size()); ++peer) {
          if (!add(clique.collectives, std::pair(peer, part.number))) return false;
        }
      } else if (part.kind == Kind::kSend) {
        if (!add(clique.receives, std::pair(std::pair(rank, part.peer), part.number))) return false;
      } else {
        if (!add(clique.sends, std::pair(std::pair(part.peer, rank), part.number))) return false;
      }
    }
  }
  return true;
}

void FakeState::Execute(const std::vector<std::shared_ptr<FakeKernel>>& kernels) {
  for (const auto& kernel : kernels) {
    for (const FakePart& part : kernel->parts) {
      if (part.kind == Kind::kSend) ExecuteSend(*kernel, part);
      // The first rank's part stands for the collective.
      if (IsCollective(part) && kernel->comm->rank == 0)
        ExecuteCollective(*kernel->comm->clique, part.number);
    }
  }
}

void FakeState::ExecuteSend(const FakeKernel& kernel, const FakePart& send) {
  FakeClique& clique = *kernel.comm->clique;
  const auto route = std::pair(std::pair(kernel.comm->rank, send.peer), send.number);
  const FakeClique::Place place = clique.receives.at(route);
  const FakePart& receive = place.kernel->parts[place.part];
  const int64_t bytes = static_cast<int64_t>(send.count) * BytesOf(send.type);
  clique.sends.erase(route);
  clique.receives.erase(route);
  if (receive.count != send.count || receive.type != send.type)
    return Misused("an ncclSend meets an ncclRecv of another size");
  const int from = kernel.comm->device;
  const int to = place.kernel->comm->device;
  if (!Check(send.in, bytes, FakePlace::kDevice, from, "ncclSend, when it runs,") ||
      !Check(receive.out, bytes, FakePlace::kDevice, to, "ncclRecv, when it runs,"))
    return;
  std::memmove(receive.out, send.in, bytes);
}

void FakeState::ExecuteCollective(FakeClique& clique, int64_t number) {
  std::vector<FakePart> parts;
  const int64_t size = static_cast<int64_t>(clique.ranks.size());
  for (int rank = 0; rank < size; ++rank) {
    const auto found = clique.collectives.find({rank, number});
    const FakeClique::Place place = found->second;
    const FakePart& part = place.kernel->parts[place.part];
    parts.push_back(part);
    clique.collectives.erase(found);
    if (!Same(parts[0], part)) return Misused("ranks of a communicator make different collectives");
    const int64_t bytes = static_cast<int64_t>(part.count) * BytesOf(part.type);
    const int64_t in = part.kind == Kind::kReduceScatter ? size * bytes : bytes;
    const int64_t out = part.kind == Kind::kAllGather ? size * bytes : bytes;
    const int device = place.kernel->comm->device;
    const bool reads = part.kind != Kind::kBroadcast || part.peer == rank;
    if (reads && !Check(part.in, in, FakePlace::kDevice, device, "a collective, when it runs,"))
      return;
    if (!Check(part.out, out, FakePlace::kDevice, device, "a collective, when it runs,")) return;
  }
  const FakePart& first = parts[0];
  const int64_t bytes = static_cast<int64_t>(first.count) * BytesOf(first.type);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const FakePart& part : parts) {
    in.push_back(part.in);
    out.push_back(part.out);
  }
  if (first.kind == Kind::kAllReduce) ReduceBackwards(first, in, out);
  for (int64_t rank = 0; rank < size; ++rank) {
    char* target = static_cast<char*>(out[rank]);
    if (first.kind == Kind::kBroadcast) std::memmove(target, in[first.peer], bytes);
    if (first.kind == Kind::kReduceScatter) {
      std::vector<const void*> slices;
      for (const void* whole : in) slices.push_back(static_cast<const char*>(whole) + rank * bytes);
      ReduceBackwards(first, slices, {target});
    }
    for (int64_t peer = 0; first.kind == Kind::kAllGather && peer < size; ++peer)
      std::memmove(target + peer * bytes, in[peer], bytes);
  }
}

}  // namespace sumonce::nccl

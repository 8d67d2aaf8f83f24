#include "comm/nccl/fake/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sumonce::nccl {
namespace {

using Kind = FakePart::Kind;

// How often a communicator says "in progress" after a call, before it has accepted it.
constexpr int kPolls = 2;

bool Fails(int code) { return code != kNcclSuccess && code != kNcclInProgress; }

}  // namespace

int FakeNccl::GetVersion(int* version) {
  *version = 22809;
  return kNcclSuccess;
}

int FakeNccl::GetUniqueId(UniqueId* out) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const int code = state_.Begin("ncclGetUniqueId");
  if (Fails(code)) return code;
  const std::string text = absl::StrCat("fake ", ids_++);
  std::memcpy(out->bytes, text.data(), text.size());
  return code;
}

int FakeNccl::CommInitRankNonBlocking(Comm* out, int ranks, const UniqueId& id, int rank) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const int code = state_.Begin("ncclCommInitRankConfig");
  if (Fails(code)) return code;
  const std::shared_ptr<FakeClique> clique = state_.CliqueOf(id, ranks);
  if (ranks != static_cast<int>(clique->ranks.size()) || rank < 0 || rank >= ranks ||
      clique->ranks[rank] != nullptr) {
    state_.Misused(absl::StrCat("ncclCommInitRankConfig: rank ", rank, " of ", ranks,
                                " is not one of the communicator's, or came twice"));
    return kNcclInvalidArgument;
  }
  const int device = state_.thread().device;
  for (const FakeComm* other : clique->ranks) {
    if (other != nullptr && other->device == device) return kNcclInvalidUsage;  // as NCCL 2.28
  }
  clique->ranks[rank] = state_.NewComm(clique, rank, device);
  ++clique->joined;
  *out = reinterpret_cast<Comm>(clique->ranks[rank]);
  Touch(*clique->ranks[rank]);
  return state_.thread().group_depth > 0 ? code : kNcclInProgress;
}

// The children join when the last rank of the parent has come; the handles come later still.
int FakeNccl::CommSplit(Comm comm, int color, int key, Comm* out) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const int code = state_.Begin("ncclCommSplit");
  if (Fails(code)) return code;
  FakeComm* parent = state_.Find(comm, "ncclCommSplit");
  if (parent == nullptr) return kNcclInvalidArgument;
  FakeClique& clique = *parent->clique;
  *out = nullptr;
  if (color >= 0) {
    FakeComm* child = state_.NewComm(nullptr, 0, parent->device);
    child->live = false;  // until the parent accepts
    child->polls_left = kPolls;
    clique.splits[color].push_back({key, parent->rank, child});
    parent->unaccepted_children.push_back({out, child});
  }
  Touch(*parent);
  if (++clique.split_calls < static_cast<int>(clique.ranks.size())) return code;
  for (auto& [children_color, children] : clique.splits) {
    std::sort(children.begin(), children.end());
    const auto made = std::make_shared<FakeClique>();
    for (const auto& [child_key, parent_rank, child] : children) {
      child->rank = made->joined++;
      child->clique = made;
      made->ranks.push_back(child);
    }
  }
  clique.splits.clear();
  clique.split_calls = 0;
  return code;
}

void FakeNccl::Touch(FakeComm& comm) {
  comm.polls_left = kPolls;
  state_.thread().touched.push_back(&comm);
}

int FakeNccl::CommGetAsyncError(Comm comm, int* result) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const int code = state_.Begin("ncclCommGetAsyncError");
  if (code != kNcclSuccess && !state_.options.fail_as_state) return code;
  FakeComm* found = state_.Find(comm, "ncclCommGetAsyncError");
  if (found == nullptr) return kNcclInvalidArgument;
  *result = code;
  if (code != kNcclSuccess) return kNcclSuccess;
  const bool complete = found->clique != nullptr &&
                        found->clique->joined == static_cast<int>(found->clique->ranks.size());
  if (state_.thread().group_depth > 0 || !complete || state_.options.never_accept ||
      found->polls_left-- > 0) {
    *result = kNcclInProgress;
    return kNcclSuccess;
  }
  found->polls_left = 0;
  found->initialized = true;
  for (const auto& kernel : found->unaccepted) state_.Enqueue(kernel);
  found->unaccepted.clear();
  for (const auto& [out, child] : found->unaccepted_children) {
    child->live = true;
    *out = reinterpret_cast<Comm>(child);
  }
  found->unaccepted_children.clear();
  return kNcclSuccess;
}

int FakeNccl::CommFinalize(Comm comm) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const int code = state_.Begin("ncclCommFinalize");
  if (Fails(code)) return code;
  FakeComm* found = state_.Find(comm, "ncclCommFinalize");
  if (found == nullptr) return kNcclInvalidArgument;
  if (found->finalized) state_.Misused("a communicator is finalized twice");
  found->finalized = true;
  Touch(*found);
  return state_.thread().group_depth > 0 ? code : kNcclInProgress;
}

int FakeNccl::CommDestroy(Comm comm) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const int code = state_.Begin("ncclCommDestroy");
  FakeComm* found = state_.Find(comm, "ncclCommDestroy");
  if (found == nullptr) return kNcclInvalidArgument;
  if (!found->finalized || found->polls_left > 0)
    state_.Misused("a communicator is destroyed before its finalizing is complete");
  found->live = false;
  state_.Cancel(*found);
  return code;
}

int FakeNccl::CommAbort(Comm comm) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const int code = state_.Begin("ncclCommAbort");
  FakeComm* found = state_.Find(comm, "ncclCommAbort");
  if (found == nullptr) return kNcclInvalidArgument;
  found->live = false;
  state_.Cancel(*found);
  return code;
}

int FakeNccl::GroupStart() {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const int code = state_.Begin("ncclGroupStart");
  if (Fails(code)) return code;
  ++state_.thread().group_depth;
  return code;
}

// A group that fails to close is closed all the same, and what it held is dropped.
int FakeNccl::GroupEnd() {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const int code = state_.Begin("ncclGroupEnd");
  FakeState::Thread& thread = state_.thread();
  if (thread.group_depth == 0) {
    state_.Misused("ncclGroupEnd without ncclGroupStart");
    return kNcclInvalidUsage;
  }
  --thread.group_depth;
  if (Fails(code)) {
    thread.group.clear();
    thread.touched.clear();
    return code;
  }
  return thread.group_depth == 0 ? CloseGroup() : code;
}

int FakeNccl::CloseGroup() {
  FakeState::Thread& thread = state_.thread();
  const bool any = !thread.touched.empty();
  for (const auto& kernel : thread.group) kernel->comm->unaccepted.push_back(kernel);
  thread.group.clear();
  thread.touched.clear();
  return any ? kNcclInProgress : kNcclSuccess;
}

int FakeNccl::Add(const char* call, const FakePart& part, Comm comm, Stream stream) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const int code = state_.Begin(call);
  if (Fails(code)) return code;
  FakeComm* found = state_.Find(comm, call);
  FakeStream* on = state_.Find(stream, call);
  if (found == nullptr || on == nullptr) return kNcclInvalidArgument;
  if (!found->initialized || found->finalized) {
    state_.Misused(absl::StrCat(call, " on a communicator that is not ready, or finalized"));
    return kNcclInvalidArgument;
  }
  if (on->device != found->device) {
    state_.Misused(absl::StrCat(call, " on a stream of device ", on->device,
                                ", of a communicator of device ", found->device));
    return kNcclInvalidArgument;
  }
  if (part.peer < 0 || part.peer >= static_cast<int>(found->clique->ranks.size())) {
    state_.Misused(absl::StrCat(call, ": no rank ", part.peer));
    return kNcclInvalidArgument;
  }
  for (const void* used : {part.in, static_cast<const void*>(part.out)}) {
    if (used != nullptr && !state_.Check(used, 1, FakePlace::kDevice, found->device, call))
      return kNcclInvalidArgument;
  }
  FakeState::Thread& thread = state_.thread();
  Touch(*found);
  const auto mine = std::find_if(thread.group.begin(), thread.group.end(), [&](const auto& kernel) {
    return kernel->comm == found && kernel->stream == on;
  });
  if (mine != thread.group.end()) {
    (*mine)->parts.push_back(part);
  } else {
    thread.group.push_back(std::make_shared<FakeKernel>(FakeKernel{found, on, {part}}));
  }
  return thread.group_depth > 0 ? code : CloseGroup();
}

int FakeNccl::AllReduce(const void* in, void* out, size_t count, NcclDataType type, NcclRedOp op,
                        Comm comm, Stream stream) {
  return Add("ncclAllReduce", {Kind::kAllReduce, in, out, count, type, op}, comm, stream);
}

int FakeNccl::ReduceScatter(const void* in, void* out, size_t count, NcclDataType type,
                            NcclRedOp op, Comm comm, Stream stream) {
  return Add("ncclReduceScatter", {Kind::kReduceScatter, in, out, count, type, op}, comm, stream);
}

int FakeNccl::AllGather(const void* in, void* out, size_t count, NcclDataType type, Comm comm,
                        Stream stream) {
  return Add("ncclAllGather", {Kind::kAllGather, in, out, count, type}, comm, stream);
}

int FakeNccl::Broadcast(const void* in, void* out, size_t count, NcclDataType type, int root,
                        Comm comm, Stream stream) {
  return Add("ncclBroadcast", {Kind::kBroadcast, in, out, count, type, kNcclSum, root}, comm,
             stream);
}

int FakeNccl::Send(const void* in, size_t count, NcclDataType type, int peer, Comm comm,
                   Stream stream) {
  return Add("ncclSend", {Kind::kSend, in, nullptr, count, type, kNcclSum, peer}, comm, stream);
}

int FakeNccl::Recv(void* out, size_t count, NcclDataType type, int peer, Comm comm, Stream stream) {
  return Add("ncclRecv", {Kind::kRecv, nullptr, out, count, type, kNcclSum, peer}, comm, stream);
}

const char* FakeNccl::GetErrorString(int code) {
  static constexpr const char* kTexts[] = {
      "no error",         "a CUDA call failed", "a system call failed", "an internal error",
      "invalid argument", "invalid usage",      "a remote error",       "in progress"};
  return code >= 0 && code < kNcclNumResults ? kTexts[code] : "unknown";
}

}  // namespace sumonce::nccl

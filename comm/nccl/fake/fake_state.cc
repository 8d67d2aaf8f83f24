#include "comm/nccl/fake/fake_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce::nccl {

int FakeState::Begin(const char* call) {
  if (options.record_calls) calls_.push_back(call);
  return ++number_of_calls_ == options.fail_call ? options.fail_code : 0;
}

std::vector<std::string> FakeState::Leaks() const {
  std::vector<std::string> leaks;
  for (const auto& [begin, block] : blocks_) {
    if (!block.live) continue;
    const std::string place = block.place == FakePlace::kPinned
                                  ? std::string("pinned memory")
                                  : absl::StrCat("memory of device ", block.device);
    leaks.push_back(absl::StrCat(block.bytes.size(), " bytes of ", place));
  }
  for (const auto& stream : streams_) {
    if (stream->live) leaks.push_back(absl::StrCat("a stream of device ", stream->device));
  }
  for (const auto& comm : comms_) {
    if (comm->live) leaks.push_back(absl::StrCat("a communicator of device ", comm->device));
  }
  for (const auto& [id, thread] : threads_) {
    if (thread.group_depth != 0) leaks.push_back("an open group");
  }
  return leaks;
}

void* FakeState::Allocate(FakePlace place, size_t bytes) {
  // Not zero: who reads what nobody wrote shall see it.
  FakeBlock block{
      .place = place, .device = thread().device, .bytes = std::vector<char>(bytes, '\xa5')};
  void* data = block.bytes.data();
  blocks_.emplace(reinterpret_cast<uintptr_t>(data), std::move(block));
  return data;
}

bool FakeState::Free(FakePlace place, void* data) {
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(data));
  if (found == blocks_.end() || !found->second.live || found->second.place != place) {
    Misused("something is freed that is not (or no longer) memory of its kind");
    return false;
  }
  for (const auto& stream : streams_) {
    for (const FakeOperation& operation : stream->queue) {
      for (const void* used : operation.uses) {
        if (BlockAt(used) == &found->second)
          Misused("memory is freed that an operation in a stream still uses");
      }
    }
  }
  found->second.live = false;
  return true;
}

FakeBlock* FakeState::BlockAt(const void* data) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(data);
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  --after;
  return address < after->first + after->second.bytes.size() ? &after->second : nullptr;
}

bool FakeState::Check(const void* data, size_t bytes, FakePlace place, int device,
                      const std::string& who) {
  const FakeBlock* block = BlockAt(data);
  std::string wrong;
  if (block == nullptr) {
    wrong = "memory that CUDA does not know";
  } else if (!block->live) {
    wrong = "memory that was freed";
  } else if (block->place != place) {
    wrong = block->place == FakePlace::kPinned ? "host memory" : "device memory";
  } else if (place == FakePlace::kDevice && block->device != device) {
    wrong = absl::StrCat("memory of device ", block->device, " on device ", device);
  } else if (static_cast<const char*>(data) + bytes > block->bytes.data() + block->bytes.size()) {
    wrong = absl::StrCat(bytes, " bytes, beyond the end of their block");
  }
  if (wrong.empty()) return true;
  Misused(absl::StrCat(who, " is given ", wrong));
  return false;
}

FakeStream* FakeState::NewStream(int device) {
  streams_.push_back(std::make_unique<FakeStream>());
  streams_.back()->device = device;
  return streams_.back().get();
}

FakeStream* FakeState::Find(Stream stream, const char* call) {
  for (const auto& known : streams_) {
    if (reinterpret_cast<Stream>(known.get()) == stream && known->live) return known.get();
  }
  Misused(absl::StrCat(call, " is given a stream that is none"));
  return nullptr;
}

FakeComm* FakeState::NewComm(std::shared_ptr<FakeClique> clique, int rank, int device) {
  comms_.push_back(std::make_unique<FakeComm>());
  FakeComm& comm = *comms_.back();
  comm.clique = std::move(clique);
  comm.rank = rank;
  comm.device = device;
  return &comm;
}

FakeComm* FakeState::Find(Comm comm, const char* call) {
  for (const auto& known : comms_) {
    if (reinterpret_cast<Comm>(known.get()) == comm && known->live) return known.get();
  }
  Misused(absl::StrCat(call, " is given a communicator that is none"));
  return nullptr;
}

std::shared_ptr<FakeClique> FakeState::CliqueOf(const UniqueId& id, int ranks) {
  std::shared_ptr<FakeClique>& clique = cliques_[std::string(id.bytes, sizeof id.bytes)];
  if (clique == nullptr) {
    clique = std::make_shared<FakeClique>();
    clique->ranks.resize(ranks);
  }
  return clique;
}

void FakeState::Cancel(FakeComm& comm) {
  comm.unaccepted.clear();
  comm.unaccepted_children.clear();
  for (const auto& stream : streams_) {
    std::erase_if(stream->queue, [&](const FakeOperation& operation) {
      return operation.kernel != nullptr && operation.kernel->comm == &comm;
    });
  }
}

bool FakeState::Drain(FakeStream& stream, const FakeKernel* until) {
  if (stream.draining) {
    return until != nullptr && !stream.queue.empty() && stream.queue.front().kernel.get() == until;
  }
  stream.draining = true;
  bool moving = true;
  bool reached = false;
  while (moving && !stream.queue.empty()) {
    const std::shared_ptr<FakeKernel> kernel = stream.queue.front().kernel;
    reached = kernel != nullptr && kernel.get() == until;
    if (reached) break;
    if (kernel != nullptr) {
      moving = TryRun(kernel);
    } else {
      stream.queue.front().run();
      stream.queue.pop_front();
    }
  }
  stream.draining = false;
  return until == nullptr ? stream.queue.empty() : reached;
}

bool FakeState::TryRun(const std::shared_ptr<FakeKernel>& kernel) {
  std::vector<std::shared_ptr<FakeKernel>> all;
  if (!Closure(kernel, all)) return false;
  for (const auto& other : all) {
    if (other->comm->device == options.stuck_device) return false;
    if (!Drain(*other->stream, other.get()) && other != kernel) return false;
  }
  Execute(all);
  for (const auto& other : all) other->stream->queue.pop_front();
  return true;
}

}  // namespace sumonce::nccl

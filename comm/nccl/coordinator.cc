#include "comm/nccl/coordinator.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/call_check.h"
#include "comm/errors.h"
#include "comm/nccl/device_collective.h"
#include "comm/nccl/process_protocol.h"
#include "comm/nccl/rendezvous_communicator.h"
#include "comm/nccl/wire.h"

namespace sumonce::nccl {
namespace {

// A call's buffers lie in its rank's process. What stands for them here is the number that the rank
// gave the call.
void* WorkAsPointer(int64_t work) {
  return reinterpret_cast<void*>(work + 1);  // NOLINT(performance-no-int-to-ptr): never followed
}
int64_t WorkOf(const Call& call) { return reinterpret_cast<int64_t>(call.in.data) - 1; }

absl::Status Lost(int rank, const absl::Status& why) {
  return RankLostError(absl::StrCat("the process of rank ", rank, " ", why.message()));
}

// Moves data by order: every process that takes part does its part on its device.
class OrderingPlane : public DataPlane {
 public:
  OrderingPlane(Api api, const PlaneOptions& options, TcpProcessGroup& processes)
      : api_(api), options_(options), processes_(processes) {}

  absl::Status Open(GroupState& world);
  absl::Status Close(int ranks);
  Communicator::Properties properties() const override {
    return {.transport = options_.transport, .ordered_sums = !options_.native_sums};
  }
  std::unique_ptr<Transfer> Prepare(const MatchedCall& call) override;
  int64_t IdOf(const GroupState& group) const;

 private:
  class OrderedGroup;
  class OrderedTransfer;
  struct Sent {
    int world_rank = 0;
    std::string message;
  };

  absl::Status Move(const MatchedCall& call, int64_t piece);
  absl::Status Split(const MatchedCall& call);
  void Release(const GroupState& group, int64_t id);
  // Sends all, then takes all answers. When one fails, the others are told to stop waiting.
  absl::Status Carry(const std::vector<Sent>& orders, const std::string& what);
  absl::Status CarryLocked(const std::vector<Sent>& orders);

  const Api api_;
  const PlaneOptions& options_;
  TcpProcessGroup& processes_;
  std::mutex mutex_;
  absl::Status broken_;
  int64_t next_group_ = kWorldGroup;
};

class OrderingPlane::OrderedGroup : public GroupResources {
 public:
  OrderedGroup(OrderingPlane& plane, const GroupState& group, int64_t id)
      : id(id), plane_(plane), group_(group) {}
  ~OrderedGroup() override { plane_.Release(group_, id); }
  const int64_t id;

 private:
  OrderingPlane& plane_;
  const GroupState& group_;
};

class OrderingPlane::OrderedTransfer : public Transfer {
 public:
  OrderedTransfer(OrderingPlane& plane, const MatchedCall& call) : plane_(plane), call_(call) {}
  int64_t chunks() const override {
    const Call& call = call_.calls.front();
    return call.kind == CallKind::kSplit ? 1 : PiecesOf(call, call_.group.size()).number();
  }
  absl::Status Move(int64_t chunk) override {
    const bool splits = call_.calls.front().kind == CallKind::kSplit;
    return splits ? plane_.Split(call_) : plane_.Move(call_, chunk);
  }

 private:
  OrderingPlane& plane_;
  MatchedCall call_;
};

Writer Ordered(Order order) { return Writer().Number(static_cast<int64_t>(order)); }

int64_t OrderingPlane::IdOf(const GroupState& group) const {
  return static_cast<const OrderedGroup&>(*group.resources).id;
}

std::unique_ptr<Transfer> OrderingPlane::Prepare(const MatchedCall& call) {
  const CallKind kind = call.calls.front().kind;
  if (kind != CallKind::kSplit && !HasPayload(kind)) return nullptr;
  return std::make_unique<OrderedTransfer>(*this, call);
}

absl::Status OrderingPlane::Open(GroupState& world) {
  UniqueId id;
  const DeviceRank zero(api_, 0, 0);
  const std::string what = "the start of " + world.description;
  const absl::Status made = zero.Nccl(api_.nccl.GetUniqueId(&id), "ncclGetUniqueId");
  if (!made.ok()) return Prefixed(made, absl::StrCat(options_.transport, ": ", what, ": "));
  std::vector<Sent> orders;
  for (int rank = 0; rank < world.size(); ++rank) {
    const Writer order = Ordered(Order::kInit)
                             .Text(std::string(id.bytes, sizeof id.bytes))
                             .Number(world.size())
                             .Number(rank);
    orders.push_back({rank, order.message()});
  }
  SUMONCE_RETURN_IF_ERROR(Carry(orders, what));
  world.resources = std::make_unique<OrderedGroup>(*this, world, next_group_++);
  return absl::OkStatus();
}

absl::Status OrderingPlane::Close(int ranks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Sent> orders;
  for (int rank = 0; rank < ranks; ++rank)
    orders.push_back({rank, Ordered(Order::kClose).message()});
  const absl::Status closed = CarryLocked(orders);
  if (broken_.ok() && !closed.ok()) {
    broken_ = absl::Status(closed.code(), absl::StrCat(options_.transport,
                                                       ": the end of the run: ", closed.message()));
  }
  return broken_;
}

absl::Status OrderingPlane::Move(const MatchedCall& call, int64_t piece) {
  std::map<int, std::vector<int64_t>> works;  // by world rank: one, or two of a message to itself
  for (size_t slot = 0; slot < call.calls.size(); ++slot) {
    // Of a Send and its Recv each names the other.
    const int rank = call.calls.front().kind == CallKind::kSend ? call.calls[1 - slot].root
                                                                : static_cast<int>(slot);
    works[call.group.world_ranks[rank]].push_back(WorkOf(call.calls[slot]));
  }
  std::vector<Sent> orders;
  for (const auto& [world_rank, own] : works) {
    Writer order = Ordered(Order::kMove).Number(IdOf(call.group)).Number(piece);
    for (int64_t work : own) order.Number(work);
    orders.push_back({world_rank, order.message()});
  }
  return Carry(orders, absl::StrCat(Describe(call.calls.front()), " on ", call.group.description));
}

absl::Status OrderingPlane::Split(const MatchedCall& call) {
  std::vector<GroupState*> groups;  // a color is an index here
  std::vector<Sent> orders;
  const std::lock_guard<std::mutex> naming(mutex_);
  const int64_t first_id = next_group_;
  for (int rank = 0; rank < call.group.size(); ++rank) {
    const SplitPart& part = call.parts[rank];
    const auto found = std::find(groups.begin(), groups.end(), part.group.get());
    int64_t color = found - groups.begin();
    if (part.group == nullptr) {
      color = kNcclSplitNoColor;
    } else if (found == groups.end()) {
      groups.push_back(part.group.get());
    }
    const Writer order = Ordered(Order::kSplit)
                             .Number(IdOf(call.group))
                             .Number(color)
                             .Number(part.rank)
                             .Number(part.group == nullptr ? kNoGroup : first_id + color)
                             .Number(part.group == nullptr ? 0 : part.group->size());
    orders.push_back({call.group.world_ranks[rank], order.message()});
  }
  next_group_ += static_cast<int64_t>(groups.size());
  SUMONCE_RETURN_IF_ERROR(broken_);
  absl::Status status = CarryLocked(orders);
  if (!status.ok()) {
    broken_ = Prefixed(status, absl::StrCat(options_.transport, ": ", Describe(call.calls.front()),
                                            " of ", call.group.description, ": "));
    return broken_;
  }
  for (size_t color = 0; color < groups.size(); ++color) {
    groups[color]->resources = std::make_unique<OrderedGroup>(
        *this, *groups[color], first_id + static_cast<int64_t>(color));
  }
  return absl::OkStatus();
}

void OrderingPlane::Release(const GroupState& group, int64_t id) {
  std::vector<Sent> orders;
  for (int rank : group.world_ranks)
    orders.push_back({rank, Ordered(Order::kRelease).Number(id).message()});
  Carry(orders, "the end of " + group.description).IgnoreError();  // Close returns it
}

absl::Status OrderingPlane::Carry(const std::vector<Sent>& orders, const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  SUMONCE_RETURN_IF_ERROR(broken_);
  const absl::Status status = CarryLocked(orders);
  if (!status.ok()) broken_ = Prefixed(status, absl::StrCat(options_.transport, ": ", what, ": "));
  return broken_;
}

absl::Status OrderingPlane::CarryLocked(const std::vector<Sent>& orders) {
  const int64_t limit_ms = processes_.options().silence_limit_ms;
  std::vector<int> pending;
  absl::Status first;
  for (const Sent& sent : orders) {
    const absl::Status status =
        processes_.link(sent.world_rank, kOrderLink)->Send(sent.message, limit_ms);
    if (status.ok()) pending.push_back(sent.world_rank);
    if (!status.ok()) first.Update(Lost(sent.world_rank, status));
  }
  const auto interrupt = [&] {
    for (int rank : pending) {
      processes_.link(rank, kOrderLink)
          ->Send(Ordered(Order::kInterrupt).message(), limit_ms)
          .IgnoreError();
    }
  };
  bool interrupted = !first.ok();
  if (interrupted) interrupt();
  while (!pending.empty()) {
    std::vector<Socket*> links;
    for (int rank : pending) links.push_back(processes_.link(rank, kOrderLink));
    const absl::StatusOr<size_t> next = Socket::WaitForAny(links, limit_ms);
    if (!next.ok()) {
      // An answer that comes later must not be taken for that to a later order.
      for (int rank : pending) {
        processes_.link(rank, kOrderLink)->Shutdown();
        first.Update(Lost(rank, next.status()));
      }
      return first;
    }
    const int rank = pending[*next];
    pending.erase(pending.begin() + static_cast<int64_t>(*next));
    absl::StatusOr<std::string> answer = links[*next]->Receive(limit_ms);
    const absl::Status status =
        answer.ok() ? Reader(*std::move(answer)).Status() : Lost(rank, answer.status());
    first.Update(status);
    if (!status.ok() && !std::exchange(interrupted, true)) interrupt();
  }
  return first;
}

// One rank's stand-in: answers its process's questions.
class Proxy {
 public:
  Proxy(OrderingPlane& plane, const std::shared_ptr<GroupState>& world, Scheduler& scheduler,
        int rank, Socket& link, int64_t limit_ms)
      : plane_(plane), rank_(rank), link_(link), limit_ms_(limit_ms) {
    groups_[kWorldGroup] = std::make_unique<RendezvousCommunicator>(scheduler, world, rank);
  }
  // Until the rank has finished, or is lost; its status.
  absl::Status Serve();
  bool finished() const { return finished_; }

 private:
  absl::Status Answer(Ask ask, Reader& question, Writer& answer);

  OrderingPlane& plane_;
  const int rank_;
  Socket& link_;
  const int64_t limit_ms_;
  bool finished_ = false;
  std::map<int64_t, std::unique_ptr<RendezvousCommunicator>> groups_;
  std::map<int64_t, std::unique_ptr<Work>> works_;  // ends before groups_
};

absl::Status Proxy::Serve() {
  while (true) {
    absl::StatusOr<std::string> received = link_.Receive(limit_ms_);
    if (!received.ok()) return Lost(rank_, received.status());
    Reader question(*std::move(received));
    const Ask ask = static_cast<Ask>(question.Number());
    if (ask == Ask::kFinish) {
      finished_ = true;
      return question.Status();
    }
    Writer more;
    const absl::Status status = Answer(ask, question, more);
    if (!question.ok()) return Lost(rank_, absl::DataLossError("asks what cannot be understood"));
    const absl::Status sent =
        link_.Send(Writer().Number(0).Status(status).message() + more.message(), limit_ms_);
    if (!sent.ok()) return Lost(rank_, sent);
  }
}

absl::Status Proxy::Answer(Ask ask, Reader& question, Writer& answer) {
  if (ask == Ask::kBegin) return absl::OkStatus();
  if (ask == Ask::kAbort) {
    groups_.begin()->second->Abort(question.Status());
    return absl::OkStatus();
  }
  const int64_t id = question.Number();
  if (ask == Ask::kWait || ask == Ask::kDrop) {
    const auto work = works_.extract(id);
    if (work.empty()) return absl::InternalError("there is no such work");
    return ask == Ask::kWait ? work.mapped()->Wait() : absl::OkStatus();
  }
  const auto group = groups_.find(id);
  if (group == groups_.end()) return absl::InternalError("there is no such group");
  if (ask == Ask::kRelease) {
    // The world's handle is what an Abort goes through, until the rank has finished.
    if (id != kWorldGroup) groups_.erase(group);
    return absl::OkStatus();
  }
  if (ask == Ask::kStart) {
    const int64_t work = question.Number();
    Call call = question.Header();
    call.in.data = call.out.data = WorkAsPointer(work);
    SUMONCE_ASSIGN_OR_RETURN(works_[work], group->second->StartChecked(std::move(call)));
    return absl::OkStatus();
  }
  const int color = static_cast<int>(question.Number());
  const int key = static_cast<int>(question.Number());
  SUMONCE_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> made,
                           group->second->Split(color, key, question.Text()));
  if (made == nullptr) {
    answer.Number(kNoGroup);
    return absl::OkStatus();
  }
  auto* handle = static_cast<RendezvousCommunicator*>(made.release());
  const int64_t made_id = plane_.IdOf(handle->group());
  groups_[made_id].reset(handle);
  answer.Number(made_id).Number(handle->rank()).Number(handle->size());
  return absl::OkStatus();
}

}  // namespace

void Coordinate(Api api, const PlaneOptions& plane_options, TcpProcessGroup& processes,
                const RunOptions& options) {
  const int ranks = options.world_size;
  const int64_t limit_ms = processes.options().silence_limit_ms;
  OrderingPlane plane(api, plane_options, processes);
  std::shared_ptr<GroupState> world = *MakeWorld(options, plane);
  absl::Status status = plane.Open(*world);
  std::vector<char> finished(ranks, 0);  // written by each rank's thread
  if (status.ok()) {
    // A thread each: a proxy waits in its socket, where no fiber may.
    status =
        RunOnExecutor({.kind = ExecutorKind::kThreads}, ranks, [&](int rank, Scheduler& scheduler) {
          Proxy proxy(plane, world, scheduler, rank, *processes.link(rank, kAskLink), limit_ms);
          absl::Status served = proxy.Serve();
          finished[rank] = proxy.finished();
          return served;
        });
  } else {
    for (int rank = 0; rank < ranks; ++rank)  // they ask whether they may begin
      finished[rank] = processes.link(rank, kAskLink)->Receive(limit_ms).ok();
  }
  world.reset();
  status.Update(plane.Close(ranks));
  const std::string last = Writer().Number(1).Status(status).message();
  for (int rank = 0; rank < ranks; ++rank) {
    Socket& link = *processes.link(rank, kAskLink);
    link.Send(last, limit_ms).IgnoreError();
    // What a lost process still has to ask belongs to no later run.
    if (!finished[rank]) link.Shutdown();
  }
}

}  // namespace sumonce::nccl

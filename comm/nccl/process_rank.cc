#include "comm/nccl/process_rank.h"

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/call_check.h"
#include "comm/errors.h"

namespace sumonce::nccl {
namespace {

// Orders may stay away for as long as the ranks compute; that process 0 has ended shows at once.
constexpr int64_t kForEver = INT64_MAX;

absl::Status RootIsGone(const absl::Status& why) {
  return RankLostError(absl::StrCat("the process of rank 0 ", why.message()));
}

absl::Status NoSuch(const char* what) {
  return absl::InternalError(absl::StrCat("an order names a ", what, " that there is not"));
}

Writer Question(Ask ask) { return Writer().Number(static_cast<int64_t>(ask)); }

class ProcessWork : public Work {
 public:
  ProcessWork(ProcessRank& process, int64_t work) : process_(process), work_(work) {}

  ~ProcessWork() override {
    if (!waited_) process_.AskedStatus(Question(Ask::kDrop).Number(work_)).IgnoreError();
    process_.RemoveWork(work_);
  }

  absl::Status Wait() override {
    if (waited_) return absl::FailedPreconditionError("a Work is waited for once");
    waited_ = true;
    return process_.AskedStatus(Question(Ask::kWait).Number(work_));
  }

 private:
  ProcessRank& process_;
  int64_t work_;
  bool waited_ = false;
};

}  // namespace

ProcessRank::ProcessRank(Api api, const PlaneOptions& options, TcpProcessGroup& processes,
                         int device)
    : api_(api),
      options_(options),
      processes_(processes),
      asks_(*processes.own_link(kAskLink)),
      orders_(*processes.own_link(kOrderLink)),
      device_(api, processes.rank(), device),
      thread_([this] { CarryOutOrders(); }) {}

// The thread ends with the order to close, or with process 0.
ProcessRank::~ProcessRank() { thread_.join(); }

absl::StatusOr<Reader> ProcessRank::Asked(const Writer& question) {
  if (is_over_) return over_.ok() ? absl::CancelledError("the run is over") : over_;
  const int64_t limit_ms = processes_.options().silence_limit_ms;
  const absl::Status sent = asks_.Send(question.message(), limit_ms);
  // A rank waits as long as its peers take; their silence is process 0's to notice. What it had to
  // say may have come before it closed.
  absl::StatusOr<std::string> received = asks_.Receive(kForEver);
  if (!received.ok()) return RootIsGone(sent.ok() ? received.status() : sent);
  Reader answer(*std::move(received));
  is_over_ = answer.Number() != 0;
  if (!is_over_) return answer;
  over_ = answer.Status();
  return over_.ok() ? absl::CancelledError("the run is over") : over_;
}

absl::Status ProcessRank::AskedStatus(const Writer& question) {
  SUMONCE_ASSIGN_OR_RETURN(Reader answer, Asked(question));
  return answer.Status();
}

absl::Status ProcessRank::Finish(const absl::Status& mine) {
  const absl::Status asked =
      AskedStatus(Writer().Number(static_cast<int64_t>(Ask::kFinish)).Status(mine));
  return is_over_ ? over_ : asked;
}

int64_t ProcessRank::AddWork(const Call& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  works_[next_work_] = call;
  return next_work_++;
}

void ProcessRank::RemoveWork(int64_t work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  works_.erase(work);
}

void ProcessRank::CarryOutOrders() {
  while (true) {
    absl::StatusOr<std::string> received = orders_.Receive(kForEver);
    if (!received.ok()) break;
    Reader message(*std::move(received));
    const Order order = static_cast<Order>(message.Number());
    if (order == Order::kInterrupt) {
      AbortAll();
      continue;
    }
    const absl::Status status = order == Order::kClose ? Close() : CarryOut(order, message);
    if (!status.ok()) AbortAll();
    const bool told =
        orders_.Send(Writer().Status(status).message(), processes_.options().silence_limit_ms).ok();
    if (order == Order::kClose) return;
    if (!told) break;
  }
  AbortAll();
  Close().IgnoreError();  // nobody is left to be told
}

absl::Status ProcessRank::CarryOut(Order order, Reader& message) {
  if (broken_) return absl::AbortedError("this rank's communicators are aborted");
  switch (order) {
    case Order::kInit:
      return Init(message);
    case Order::kMove:
      return Move(message);
    case Order::kSplit:
      return Split(message);
    case Order::kRelease:
      return Release(message);
    default:
      return absl::InternalError("an order that there is not");
  }
}

Member ProcessRank::MemberOf(const GroupOfRank& group, const Call* call) const {
  return {.device = const_cast<DeviceRank*>(&device_),
          .comm = group.comm,
          .rank = group.rank,
          .call = call};
}

absl::Status ProcessRank::Init(Reader& message) {
  SUMONCE_RETURN_IF_ERROR(device_.Open());
  UniqueId id;
  const std::string bytes = message.Text();
  if (bytes.size() != sizeof id.bytes) return NoSuch("unique id");
  std::memcpy(id.bytes, bytes.data(), sizeof id.bytes);
  GroupOfRank& world = groups_[kWorldGroup];
  world.size = static_cast<int>(message.Number());
  world.rank = static_cast<int>(message.Number());
  Member member = MemberOf(world, nullptr);
  return InGroup(api_, {&member, 1}, Limits(), [&](const Member& m) {
    absl::Status status =
        m.device->Nccl(api_.nccl.CommInitRankNonBlocking(&world.comm, world.size, id, world.rank),
                       "ncclCommInitRankConfig");
    member.comm = world.comm;
    return status;
  });
}

// No order comes before one is answered, but that to stop, or the end of process 0.
WaitLimits ProcessRank::Limits() const {
  return {.time_limit_us = options_.time_limit_us, .interrupted = [this] {
            return orders_.Readable() ? absl::AbortedError("another rank has failed")
                                      : absl::OkStatus();
          }};
}

absl::Status ProcessRank::Move(Reader& message) {
  const auto found = groups_.find(message.Number());
  if (found == groups_.end()) return NoSuch("group");
  const GroupOfRank& group = found->second;
  const int64_t piece = message.Number();
  std::vector<Call> calls;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (!message.at_end()) {
      const auto work = works_.find(message.Number());
      if (work == works_.end()) return NoSuch("call");
      calls.push_back(work->second);
    }
  }
  std::vector<Member> members;
  for (const Call& call : calls) members.push_back(MemberOf(group, &call));
  const CollectiveOptions options = {
      .group_size = group.size, .native_sums = options_.native_sums, .limits = Limits()};
  return MovePiece(api_, options, members, piece);
}

absl::Status ProcessRank::Split(Reader& message) {
  const auto found = groups_.find(message.Number());
  if (found == groups_.end()) return NoSuch("group");
  const GroupOfRank parent = found->second;
  const int color = static_cast<int>(message.Number());
  const int rank = static_cast<int>(message.Number());
  const int64_t id = message.Number();
  // NCCL writes the handle when it is ready to: it has its place for as long as the parent.
  GroupOfRank& child = id == kNoGroup ? nowhere_ : groups_[id];
  child = {.rank = rank, .size = static_cast<int>(message.Number())};
  const Member member = MemberOf(parent, nullptr);
  SUMONCE_RETURN_IF_ERROR(InGroup(api_, {&member, 1}, Limits(), [&](const Member& m) {
    return m.device->Nccl(api_.nccl.CommSplit(m.comm, color, rank, &child.comm), "ncclCommSplit");
  }));
  const Member made = MemberOf(child, nullptr);
  return AwaitComms(api_, {&made, 1}, Limits(), "into a group");
}

absl::Status ProcessRank::Release(Reader& message) {
  const auto found = groups_.find(message.Number());
  if (found == groups_.end()) return NoSuch("group");
  const Member member = MemberOf(found->second, nullptr);
  SUMONCE_RETURN_IF_ERROR(InGroup(api_, {&member, 1}, Limits(), [&](const Member& m) {
    return m.device->Nccl(api_.nccl.CommFinalize(m.comm), "ncclCommFinalize");
  }));
  groups_.erase(found);
  return device_.Nccl(api_.nccl.CommDestroy(member.comm), "ncclCommDestroy");
}

absl::Status ProcessRank::Close() {
  if (!groups_.empty()) AbortAll();
  return device_.Close(options_.time_limit_us);
}

void ProcessRank::AbortAll() {
  broken_ = true;
  const bool entered = device_.Enter().ok();
  for (const auto& [id, group] : groups_) {
    if (entered && group.comm != nullptr) api_.nccl.CommAbort(group.comm);
  }
  groups_.clear();
}

ProcessCommunicator::~ProcessCommunicator() {
  process_.AskedStatus(Question(Ask::kRelease).Number(group_)).IgnoreError();
}

Communicator::Properties ProcessCommunicator::properties() const {
  return {.transport = process_.options().transport,
          .ordered_sums = !process_.options().native_sums};
}

absl::StatusOr<std::unique_ptr<Work>> ProcessCommunicator::Start(Call call) {
  SUMONCE_RETURN_IF_ERROR(CheckCall(call, rank_, size_));
  const int64_t work = process_.AddWork(call);
  const absl::Status started =
      process_.AskedStatus(Question(Ask::kStart).Number(group_).Number(work).Header(call));
  if (started.ok()) return std::make_unique<ProcessWork>(process_, work);
  process_.RemoveWork(work);
  return started;
}

absl::StatusOr<std::unique_ptr<Communicator>> ProcessCommunicator::Split(int color, int key,
                                                                         std::string_view label) {
  SUMONCE_ASSIGN_OR_RETURN(
      Reader answer,
      process_.Asked(
          Question(Ask::kSplit).Number(group_).Number(color).Number(key).Text(std::string(label))));
  SUMONCE_RETURN_IF_ERROR(answer.Status());
  const int64_t group = answer.Number();
  if (group == kNoGroup) return std::unique_ptr<Communicator>();
  const int rank = static_cast<int>(answer.Number());
  const int size = static_cast<int>(answer.Number());
  return std::make_unique<ProcessCommunicator>(process_, group, rank, size);
}

void ProcessCommunicator::Abort(absl::Status status) {
  process_.AskedStatus(Question(Ask::kAbort).Status(status)).IgnoreError();
}

}  // namespace sumonce::nccl

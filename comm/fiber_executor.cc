#include "comm/fiber_executor.h"

#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fiber_annotations.h"
#include "base/status.h"
#include "comm/run_queue.h"
#include "comm/wait_table.h"

namespace sumonce {
namespace {

namespace context = boost::context;

class FiberExecutor : public Scheduler {
 public:
  FiberExecutor(const ExecutorOptions& options, int ranks,
                const std::function<absl::Status(int, Scheduler&)>& body)
      : options_(options),
        body_(body),
        table_(ranks),
        runnable_(options.schedule),
        queued_(ranks, false) {}

  absl::Status Run();

  void Exclusive(const std::function<void()>& section) override { section(); }
  absl::Status WaitUntil(int rank, const std::function<bool()>& ready,
                         const std::function<std::string()>& waiting_for) override;
  void Notify(int rank) override { notified_.push_back(rank); }
  void Stop(absl::Status status) override;
  absl::Status StopStatus() const override { return table_.stop_status(); }
  bool Stopped() const override { return !table_.stop_status().ok(); }
  bool AnyWaiting() const override { return table_.waiting() > 0; }
  // Even what is ready goes through WaitUntil, where the schedule may switch.
  bool Spin(const std::function<bool()>&) override { return false; }

 private:
  struct Strand {
    context::fiber fiber;
    FiberAnnotation annotation;
  };

  Strand MakeStrand(int rank);
  context::fiber RankMain(int rank, context::fiber&& main);
  int Next();
  void Resume(int rank);
  void Suspend(int rank);
  void Queue(int rank);
  void QueueNotified();
  void QueueReady();

  const ExecutorOptions& options_;
  const std::function<absl::Status(int, Scheduler&)>& body_;
  WaitTable table_;
  RunQueue runnable_;
  std::vector<bool> queued_;   // in runnable_
  std::vector<int> notified_;  // may have become ready since the last switch
  std::vector<Strand> strands_;
  context::fiber main_;
  FiberAnnotation main_annotation_ = FiberAnnotation::OfThread();
};

absl::Status FiberExecutor::Run() {
  for (int rank = 0; rank < table_.size(); ++rank) strands_.push_back(MakeStrand(rank));
  for (int rank = 0; rank < table_.size(); ++rank) Queue(rank);
  while (table_.unfinished() > 0) Resume(Next());
  return table_.result();
}

FiberExecutor::Strand FiberExecutor::MakeStrand(int rank) {
  context::protected_fixedsize_stack allocator(options_.stack_bytes);
  const context::stack_context stack = allocator.allocate();
  const void* bottom = static_cast<char*>(stack.sp) - stack.size;
  return {context::fiber(
              std::allocator_arg, context::preallocated(stack.sp, stack.size, stack), allocator,
              [this, rank](context::fiber&& main) { return RankMain(rank, std::move(main)); }),
          FiberAnnotation::OfFiber(bottom, stack.size)};
}

context::fiber FiberExecutor::RankMain(int rank, context::fiber&& main) {
  strands_[rank].annotation.AfterSwitchFrom(main_annotation_);
  main_ = std::move(main);
  {
    const absl::Status status = RunBody([&] { return body_(rank, *this); }, rank);
    table_.Finish(rank, status);
    if (!status.ok()) Stop(status);
  }
  strands_[rank].annotation.Finish();
  strands_[rank].annotation.BeforeSwitchTo(main_annotation_);
  return std::move(main_);
}

int FiberExecutor::Next() {
  QueueNotified();
  if (runnable_.empty()) QueueReady();
  if (runnable_.empty()) Stop(table_.Deadlock());
  SUMONCE_CHECK(!runnable_.empty()) << table_.unfinished() << " ranks neither wait nor run";
  const int rank = runnable_.Pop();
  queued_[rank] = false;
  return rank;
}

void FiberExecutor::Resume(int rank) {
  Strand& strand = strands_[rank];
  main_annotation_.BeforeSwitchTo(strand.annotation);
  strand.fiber = std::move(strand.fiber).resume();
  main_annotation_.AfterSwitchFrom(strand.annotation);
  if (!strand.fiber) strand.annotation.Destroy();
}

void FiberExecutor::Suspend(int rank) {
  strands_[rank].annotation.BeforeSwitchTo(main_annotation_);
  main_ = std::move(main_).resume();
  strands_[rank].annotation.AfterSwitchFrom(main_annotation_);
}

absl::Status FiberExecutor::WaitUntil(int rank, const std::function<bool()>& ready,
                                      const std::function<std::string()>& waiting_for) {
  if (!table_.stop_status().ok()) return table_.stop_status();
  const bool now = ready();
  // Schedule 0 goes on while it can; the others may switch at every wait, to see more
  // interleavings.
  if (now && options_.schedule == 0) return absl::OkStatus();
  table_.Begin(rank, ready, waiting_for);
  if (now) Queue(rank);
  Suspend(rank);
  table_.End(rank);
  return table_.stop_status();
}

void FiberExecutor::Stop(absl::Status status) {
  if (!table_.Stop(std::move(status))) return;
  for (int rank = 0; rank < table_.size(); ++rank) {
    if (table_.IsWaiting(rank)) Queue(rank);
  }
}

void FiberExecutor::Queue(int rank) {
  if (queued_[rank]) return;
  queued_[rank] = true;
  runnable_.Push(rank);
}

void FiberExecutor::QueueNotified() {
  for (int rank : notified_) {
    if (!queued_[rank] && table_.IsReady(rank)) Queue(rank);
  }
  notified_.clear();
}

void FiberExecutor::QueueReady() {
  for (int rank = 0; rank < table_.size(); ++rank) {
    if (table_.IsReady(rank)) Queue(rank);
  }
}

}  // namespace

absl::Status RunOnFibers(const ExecutorOptions& options, int ranks,
                         const std::function<absl::Status(int, Scheduler&)>& body) {
  try {
    return FiberExecutor(options, ranks, body).Run();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", ranks, " fiber stacks of ", options.stack_bytes, " bytes"));
  }
}

}  // namespace sumonce

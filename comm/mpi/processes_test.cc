#include "comm/mpi/processes.h"

#include <unistd.h>

#include <deque>

#include "base/status.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

// One process; what "arrives" is what the test puts in, whoever is said to have sent it.
class ScriptedWire : public Wire {
 public:
  explicit ScriptedWire(std::deque<std::string>& arriving) : arriving_(arriving) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void Send(int, std::string bytes) override { arriving_.push_back(std::move(bytes)); }
  std::optional<Message> Receive() override {
    if (arriving_.empty()) return std::nullopt;
    Message message{.from = 0, .bytes = std::move(arriving_.front())};
    arriving_.pop_front();
    return message;
  }
  bool AllSent() override { return true; }
  const std::string& error() const override { return error_; }
  int MakeGroup(const std::string&, const std::vector<int>&) override { return 0; }
  std::unique_ptr<NativeReduction> Reduce(int, const Call&) override { return nullptr; }
  void Finalize() override {}
  void Abort(int status) override { _exit(status); }

 private:
  std::deque<std::string>& arriving_;
  std::string error_;
};

class ProcessesTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = Processes::Open(std::make_unique<ScriptedWire>(arriving_));
    ASSERT_TRUE(opened.ok()) << opened.status();
    processes_ = *std::move(opened);
  }
  void Arrives(FrameKind kind, int64_t run) { arriving_.push_back(BeginFrame(kind, run).Take()); }
  // The frames that one run sees, as "kind" numbers.
  std::vector<FrameKind> SeenByNextRun() {
    std::vector<FrameKind> seen;
    processes_->BeginRun([&](int, const Frame& frame) {
      seen.push_back(frame.kind);
      return absl::OkStatus();
    });
    EXPECT_TRUE(processes_->Poll().ok());
    processes_->EndRun();
    return seen;
  }

  std::deque<std::string> arriving_;
  std::unique_ptr<Processes> processes_;
};

// A process that took no part in run 1 hears of its end after others have told it of run 3.
TEST_F(ProcessesTest, FramesOfLaterRunsHoldUpNoneOfThisRun) {
  Arrives(FrameKind::kCall, 3);
  Arrives(FrameKind::kEnd, 1);
  Arrives(FrameKind::kProbe, 2);
  Arrives(FrameKind::kData, 3);
  EXPECT_TRUE(processes_->Poll().ok());
  EXPECT_EQ(SeenByNextRun(), std::vector<FrameKind>{FrameKind::kEnd});
  EXPECT_EQ(SeenByNextRun(), std::vector<FrameKind>{FrameKind::kProbe});
  EXPECT_EQ(SeenByNextRun(), (std::vector<FrameKind>{FrameKind::kCall, FrameKind::kData}));
}

// What a failed run left under way is nobody's any more.
TEST_F(ProcessesTest, FramesOfAnEarlierRunAreDropped) {
  EXPECT_TRUE(SeenByNextRun().empty());
  Arrives(FrameKind::kData, 1);
  EXPECT_TRUE(processes_->Poll().ok());
  Arrives(FrameKind::kData, 1);
  EXPECT_TRUE(SeenByNextRun().empty());
}

TEST_F(ProcessesTest, MessagesOfAnySizeComeWhole) {
  const std::string large(size_t{130} << 20, 'x');  // several pieces
  EXPECT_EQ(processes_->SendToRoot(large), absl::OkStatus());
  EXPECT_EQ(processes_->SendToRoot(""), absl::OkStatus());
  EXPECT_TRUE(*processes_->ReceiveFrom(0) == large);
  EXPECT_EQ(*processes_->ReceiveFrom(0), "");
}

// Nothing comes for the time limit: an error that says so, and the group is of no more use.
TEST_F(ProcessesTest, AWaitEnds) {
  processes_->SetTimeLimit(0.05);
  EXPECT_EQ(processes_->ReceiveFrom(0).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(processes_->failure().ok());
  EXPECT_EQ(processes_->SendToRoot("late"), processes_->failure());
}

TEST_F(ProcessesTest, AMalformedFrameIsAnErrorOfEveryLaterCall) {
  arriving_.push_back("?");
  const absl::Status status = processes_->ReceiveFrom(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(processes_->failure(), status);
}

}  // namespace
}  // namespace sumonce

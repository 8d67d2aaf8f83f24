#include "comm/mpi/processes.h"

#include <deque>

#include "base/status.h"
#include "comm/mpi/scripted_wire.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

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

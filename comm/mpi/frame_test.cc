#include "comm/mpi/frame.h"

#include <functional>

#include "comm/errors.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

std::string Body(const std::function<void(ByteWriter&)>& write) {
  ByteWriter writer;
  write(writer);
  return writer.Take();
}

CallFrame SampleCall() {
  return {.to = {.stream = "/3:1", .number = 7, .slot = 2},
          .from_slot = 1,
          .call = {.kind = CallKind::kReduceScatter,
                   .in = {nullptr, 12, DType::kBFloat16},
                   .out = {nullptr, 4, DType::kBFloat16},
                   .op = ReduceOp::kMax,
                   .root = 5,
                   .label = "layer/ReduceScatter#0"},
          .split = {.color = -1, .key = 9}};
}

TEST(Frame, CallsComeBackWhole) {
  const std::string body = Body([](ByteWriter& writer) { WriteCall(SampleCall(), writer); });
  const absl::StatusOr<CallFrame> back = ReadCall(body);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->to, SampleCall().to);
  EXPECT_EQ(back->from_slot, 1);
  EXPECT_EQ(Describe(back->call), Describe(SampleCall().call));
  EXPECT_EQ(back->call.in.count, 12);
  EXPECT_EQ(back->call.root, 5);
  EXPECT_EQ(back->split.color, -1);
  EXPECT_EQ(back->split.key, 9);
  for (size_t size = 0; size < body.size(); ++size)
    EXPECT_FALSE(ReadCall(body.substr(0, size)).ok()) << size;
  EXPECT_FALSE(ReadCall(body + "x").ok());
}

TEST(Frame, HeadsAreChecked) {
  ByteWriter writer = BeginFrame(FrameKind::kFlush, 3);
  writer.U8(1);
  const absl::StatusOr<Frame> frame = ParseFrame(writer.Take());
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(frame->kind, FrameKind::kFlush);
  EXPECT_EQ(frame->run, 3);
  EXPECT_EQ(frame->body().size(), 1u);
  EXPECT_FALSE(ParseFrame("").ok());
  EXPECT_FALSE(ParseFrame(std::string(Frame::kHeadBytes, '\x7f')).ok()) << "no such kind";
}

TEST(Frame, StatusesKeepTheirKind) {
  for (const absl::Status& status :
       {absl::OkStatus(), CollectiveMismatchError("a"), DeadlockError("b"), RankLostError("c"),
        absl::DataLossError("d"), absl::UnavailableError("e")}) {
    const std::string body = Body([&](ByteWriter& writer) { WriteStatus(status, writer); });
    ByteReader reader(body);
    EXPECT_EQ(ReadStatus(reader), status);
  }
  ByteReader nothing("");
  EXPECT_EQ(ReadStatus(nothing).code(), absl::StatusCode::kInternal);
}

TEST(Frame, ReportsAndDataComeBackWhole) {
  const RankReport report{.state = RankReport::State::kBlocked,
                          .wave = 4,
                          .sent = 5,
                          .received = 6,
                          .waits = 7,
                          .waiting_for = "x"};
  const std::string body = Body([&](ByteWriter& writer) { WriteReport(report, writer); });
  const absl::StatusOr<RankReport> back = ReadReport(body);
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(back->SameStillness(report));
  EXPECT_EQ(back->wave, 4);
  EXPECT_EQ(back->waiting_for, "x");
  EXPECT_FALSE(ReadReport(body + "x").ok());

  const std::string data = Body([](ByteWriter& writer) {
    WriteData({.to = {"s", 1, 0}, .from_slot = 3, .phase = 1}, writer);
    writer.Raw("abc", 3);
  });
  std::string_view rest = data;
  const absl::StatusOr<DataHead> head = ReadData(rest);
  ASSERT_TRUE(head.ok());
  EXPECT_EQ(head->from_slot, 3);
  EXPECT_EQ(head->phase, 1);
  EXPECT_EQ(rest, "abc");
}

}  // namespace
}  // namespace sumonce

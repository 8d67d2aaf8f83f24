#include "cost/measure.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

const Transport& InProcess() { return **Transports().Find("in_process"); }

CollectiveBench Quick(CallKind call, DType dtype, ReduceOp op) {
  return {.call = call,
          .dtype = dtype,
          .op = op,
          .bytes = {0, 24, 4096, 4104},
          .repeats = 3,
          .seconds_per_repeat = 1e-5};
}

TEST(CollectiveBench, EveryCallAndTypeIsMeasuredAndRight) {
  for (const CallKind call : {CallKind::kAllReduce, CallKind::kReduceScatter, CallKind::kAllGather,
                              CallKind::kAllToAll, CallKind::kBroadcast}) {
    for (const DType dtype :
         {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kInt32}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kAvg}) {
        const bool integer = dtype == DType::kInt64 || dtype == DType::kInt32;
        if (integer && op == ReduceOp::kAvg) continue;
        SCOPED_TRACE(testing::Message() << Name(call) << " " << Name(op) << " " << Name(dtype));
        const auto rows =
            RunCollectiveBench(InProcess(), {.world_size = 3}, Quick(call, dtype, op));
        ASSERT_TRUE(rows.ok()) << rows.status();
        ASSERT_EQ(rows->size(), 4u);
        for (const BenchRow& row : *rows) {
          EXPECT_EQ(row.wrong, 0) << row.bytes;
          EXPECT_EQ(row.bytes, row.count * SizeOf(dtype));
          EXPECT_LE(row.fastest, row.seconds);
          EXPECT_LE(row.seconds, row.slowest);
        }
      }
    }
  }
}

// A communicator that gives every rank its own sum back, as one that dropped a contribution would.
class DropsOne : public Communicator {
 public:
  explicit DropsOne(Communicator& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Properties properties() const override { return inner_.properties(); }
  absl::StatusOr<std::unique_ptr<Work>> Start(Call call) override {
    if (call.label == "bench" && rank() == 1 && call.in.count > 0)
      static_cast<float*>(call.in.data)[0] = 0;
    return inner_.Start(std::move(call));
  }
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int, int, std::string_view) override {
    return absl::UnimplementedError("no groups");
  }
  void Abort(absl::Status status) override { inner_.Abort(std::move(status)); }

 private:
  Communicator& inner_;
};

TEST(CollectiveBench, CountsTheElementsThatAreWrong) {
  Transport dropping = InProcess();
  dropping.run = [](const RunOptions& options, const RankBody& body) {
    return InProcess().run(options, [&](Communicator& world) {
      DropsOne wrapped(world);
      return body(wrapped);
    });
  };
  CollectiveBench bench = Quick(CallKind::kAllReduce, DType::kFloat32, ReduceOp::kSum);
  bench.bytes = {4096};
  const auto rows = RunCollectiveBench(dropping, {.world_size = 2}, bench);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->front().wrong, 2);  // one element on either rank
}

TEST(CollectiveBench, RefusesWhatIsNotMeasured) {
  const auto message = [](const CollectiveBench& bench) {
    return std::string(
        RunCollectiveBench(InProcess(), {.world_size = 2}, bench).status().message());
  };
  EXPECT_THAT(message({.call = CallKind::kSend}), testing::HasSubstr("a Send is not measured"));
  EXPECT_THAT(message({.dtype = DType::kInt32, .op = ReduceOp::kAvg}),
              testing::HasSubstr("no AVG of int32"));
}

TEST(CollectiveBench, BusFactorsAreThoseOfNcclTests) {
  EXPECT_EQ(BusFactor(CallKind::kAllReduce, 4), 1.5);
  EXPECT_EQ(BusFactor(CallKind::kAllGather, 4), 0.75);
  EXPECT_EQ(BusFactor(CallKind::kBroadcast, 4), 1);
}

}  // namespace
}  // namespace sumonce

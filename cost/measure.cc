#include "cost/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cost/page_buffer.h"

namespace sumonce {
namespace {

constexpr int64_t kMostCalls = 20000;  // of one repeat

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Small integers, so that every sum is exact in every dtype: bfloat16 holds integers up to 256.
int InputOf(int rank, int64_t index) { return static_cast<int>((rank + index) % 3); }

void Store(DType dtype, int64_t index, double value, void* data) {
  switch (dtype) {
    case DType::kFloat64:
      static_cast<double*>(data)[index] = value;
      return;
    case DType::kFloat32:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      return;
    case DType::kBFloat16:
      static_cast<BFloat16*>(data)[index] = BFloat16::FromFloat(static_cast<float>(value));
      return;
    case DType::kInt64:
      static_cast<int64_t*>(data)[index] = static_cast<int64_t>(value);
      return;
    default:
      static_cast<int32_t*>(data)[index] = static_cast<int32_t>(value);
  }
}

double LoadValue(DType dtype, int64_t index, const void* data) {
  switch (dtype) {
    case DType::kFloat64:
      return static_cast<const double*>(data)[index];
    case DType::kFloat32:
      return static_cast<const float*>(data)[index];
    case DType::kBFloat16:
      return static_cast<const BFloat16*>(data)[index].ToFloat();
    case DType::kInt64:
      return static_cast<double>(static_cast<const int64_t*>(data)[index]);
    default:
      return static_cast<const int32_t*>(data)[index];
  }
}

// What the reduction of element `index` must be, written from the inputs.
double Reduced(const CollectiveBench& bench, int ranks, int64_t index) {
  double sum = 0;
  double most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    sum += InputOf(rank, index);
    most = std::max<double>(most, InputOf(rank, index));
  }
  if (bench.op == ReduceOp::kMax) return most;
  if (bench.op == ReduceOp::kSum) return sum;
  const double mean = sum / ranks;
  if (bench.dtype == DType::kFloat64) return mean;
  const float single = static_cast<float>(sum) / static_cast<float>(ranks);
  return bench.dtype == DType::kFloat32 ? single : BFloat16::FromFloat(single).ToFloat();
}

// One rank's part in one size.
class RankBench {
 public:
  RankBench(const CollectiveBench& bench, Communicator& world, int64_t bytes)
      : bench_(bench), world_(world), ranks_(world.size()) {
    count_ = bytes / SizeOf(bench.dtype);
    if (bench.call != CallKind::kAllReduce && bench.call != CallKind::kBroadcast)
      count_ -= count_ % ranks_;
  }

  absl::StatusOr<BenchRow> Run() {
    SUMONCE_ASSIGN_OR_RETURN(in_, PageBuffer::Create(InCount() * SizeOf(bench_.dtype)));
    SUMONCE_ASSIGN_OR_RETURN(out_, PageBuffer::Create(OutCount() * SizeOf(bench_.dtype)));
    BenchRow row{.bytes = count_ * SizeOf(bench_.dtype), .count = count_};
    Fill();
    SUMONCE_RETURN_IF_ERROR(world_.Run(MakeCall()));
    SUMONCE_ASSIGN_OR_RETURN(row.wrong, CountWrong());
    SUMONCE_RETURN_IF_ERROR(Time(row));
    return row;
  }

 private:
  int64_t InCount() const { return bench_.call == CallKind::kAllGather ? count_ / ranks_ : count_; }
  int64_t OutCount() const {
    return bench_.call == CallKind::kReduceScatter ? count_ / ranks_ : count_;
  }

  Call MakeCall() const {
    return {.kind = bench_.call,
            .in = {in_.data(), InCount(), bench_.dtype},
            .out = {out_.data(), OutCount(), bench_.dtype},
            .op = bench_.op,
            .label = "bench"};
  }

  void Fill() {
    for (int64_t i = 0; i < InCount(); ++i)
      Store(bench_.dtype, i, InputOf(world_.rank(), i), in_.data());
    for (int64_t i = 0; i < OutCount(); ++i) Store(bench_.dtype, i, 99, out_.data());
  }

  double Expected(int64_t index) const {
    const int64_t slice = std::max<int64_t>(count_ / ranks_, 1);
    switch (bench_.call) {
      case CallKind::kAllReduce:
        return Reduced(bench_, ranks_, index);
      case CallKind::kReduceScatter:
        return Reduced(bench_, ranks_, world_.rank() * slice + index);
      case CallKind::kAllGather:
        return InputOf(static_cast<int>(index / slice), index % slice);
      case CallKind::kAllToAll:
        return InputOf(static_cast<int>(index / slice), world_.rank() * slice + index % slice);
      default:
        return InputOf(0, index);
    }
  }

  absl::StatusOr<int64_t> CountWrong() {
    double wrong = 0;
    for (int64_t i = 0; i < OutCount(); ++i)
      wrong += LoadValue(bench_.dtype, i, out_.data()) != Expected(i);
    const Buffer buffer{&wrong, 1, DType::kFloat64};
    SUMONCE_RETURN_IF_ERROR(world_.AllReduce(buffer, buffer, ReduceOp::kSum, "wrong"));
    return static_cast<int64_t>(wrong);
  }

  // The slowest rank's seconds a call.
  absl::StatusOr<double> Repeat(int64_t calls) {
    SUMONCE_RETURN_IF_ERROR(world_.Barrier("begin"));
    const Clock::time_point start = Clock::now();
    for (int64_t i = 0; i < calls; ++i) SUMONCE_RETURN_IF_ERROR(world_.Run(MakeCall()));
    double seconds = SecondsSince(start) / static_cast<double>(calls);
    const Buffer buffer{&seconds, 1, DType::kFloat64};
    SUMONCE_RETURN_IF_ERROR(world_.AllReduce(buffer, buffer, ReduceOp::kMax, "seconds"));
    return seconds;
  }

  absl::Status Time(BenchRow& row) {
    SUMONCE_ASSIGN_OR_RETURN(double warm, Repeat(1));
    SUMONCE_ASSIGN_OR_RETURN(warm, Repeat(warm > bench_.seconds_per_repeat ? 1 : 8));
    const double fit = bench_.seconds_per_repeat / std::max(warm, 1e-9);
    const auto calls = static_cast<int64_t>(std::clamp<double>(fit, 1, kMostCalls));
    std::vector<double> seconds;
    for (int i = 0; i < bench_.repeats; ++i) {
      SUMONCE_ASSIGN_OR_RETURN(const double one, Repeat(calls));
      seconds.push_back(one);
    }
    std::sort(seconds.begin(), seconds.end());
    row.seconds = seconds[seconds.size() / 2];
    row.fastest = seconds.front();
    row.slowest = seconds.back();
    return absl::OkStatus();
  }

  const CollectiveBench& bench_;
  Communicator& world_;
  int ranks_;
  int64_t count_ = 0;
  PageBuffer in_;
  PageBuffer out_;
};

absl::Status CheckBench(const CollectiveBench& bench) {
  switch (bench.call) {
    case CallKind::kAllReduce:
    case CallKind::kReduceScatter:
    case CallKind::kAllGather:
    case CallKind::kAllToAll:
    case CallKind::kBroadcast:
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("a ", ToAbsl(Name(bench.call)), " is not measured"));
  }
  const bool integer = bench.dtype == DType::kInt32 || bench.dtype == DType::kInt64;
  const bool has = integer || bench.dtype == DType::kFloat64 || bench.dtype == DType::kFloat32 ||
                   bench.dtype == DType::kBFloat16;
  if (!has || (integer && bench.op == ReduceOp::kAvg)) {
    return absl::InvalidArgumentError(absl::StrCat("no ", ToAbsl(Name(bench.op)), " of ",
                                                   ToAbsl(Name(bench.dtype)), " is measured"));
  }
  if (bench.repeats < 1) return absl::InvalidArgumentError("a bench repeats once or more");
  return absl::OkStatus();
}

}  // namespace

double BusFactor(CallKind call, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (call) {
    case CallKind::kAllReduce:
      return 2 * others;
    case CallKind::kBroadcast:
      return 1;
    default:
      return others;
  }
}

absl::StatusOr<std::vector<BenchRow>> RunCollectiveBench(const Transport& transport,
                                                         const RunOptions& options,
                                                         const CollectiveBench& bench) {
  SUMONCE_RETURN_IF_ERROR(CheckBench(bench));
  std::vector<BenchRow> rows;
  std::mutex mutex;
  SUMONCE_RETURN_IF_ERROR(transport.run(options, [&](Communicator& world) {
    std::vector<BenchRow> mine;
    for (const int64_t bytes : bench.bytes) {
      SUMONCE_ASSIGN_OR_RETURN(const BenchRow row, RankBench(bench, world, bytes).Run());
      mine.push_back(row);
    }
    const std::lock_guard<std::mutex> lock(mutex);
    rows = std::move(mine);
    return absl::OkStatus();
  }));
  return rows;
}

}  // namespace sumonce

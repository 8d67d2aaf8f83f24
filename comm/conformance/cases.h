// What the conformance suites run over: every registered transport, executor and world size, each
// as it is and behind the wrappers, which must not show; and inputs in whose sums the order of the
// terms shows.
//
// A body uses its own rank's data only, and asserts inside or on what ranks of this process left.
//
// A transport that needs a machine (Transport::capacity) or a process per rank is run when
// SUMONCE_CONFORMANCE_TRANSPORT names it, alone. With processes
// every process that its launcher started runs the same tests at the same time, and a failure of
// any is one of the suite. With SUMONCE_CONFORMANCE_NATIVE set its own reductions are used, and
// held to a bound where they promise no order.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/errors.h"
#include "comm/fault.h"
#include "comm/recording.h"
#include "comm/transport.h"
#include "gtest/gtest.h"

namespace sumonce {

enum class Wrapping { kNone, kRecording, kFaultless, kBoth };

struct ConformanceCase {
  std::string transport;
  ExecutorKind executor = ExecutorKind::kFibers;
  int size = 1;
  Wrapping wrapping = Wrapping::kNone;
};

inline std::string NameOf(Wrapping wrapping) {
  switch (wrapping) {
    case Wrapping::kNone:
      return "";
    case Wrapping::kRecording:
      return "recording_";
    case Wrapping::kFaultless:
      return "faultless_";
    case Wrapping::kBoth:
      return "faultless_recording_";
  }
  return "";
}

inline void PrintTo(const ConformanceCase& parameters, std::ostream* out) {
  *out << NameOf(parameters.wrapping) << parameters.transport << ", " << Name(parameters.executor)
       << ", " << parameters.size << " ranks";
}

// Every transport and executor at each of these sizes; wrapped at `wrapped_sizes`.
inline std::vector<ConformanceCase> ConformanceCases(const std::vector<int>& sizes,
                                                     const std::vector<int>& wrapped_sizes) {
  const char* named = std::getenv("SUMONCE_CONFORMANCE_TRANSPORT");
  std::vector<ConformanceCase> cases;
  for (const auto& entry : Transports().all()) {
    const std::string& name = entry.first;
    const auto& transport = entry.second;
    const bool needs_a_machine = transport.processes != nullptr || transport.capacity != nullptr;
    if (named != nullptr ? name != named : needs_a_machine) continue;
    std::vector<ExecutorKind> executors = transport.executors;
    if (transport.processes) executors = {ExecutorKind::kThreads};  // which it ignores
    for (ExecutorKind executor : executors) {
      const auto add = [&](int size, Wrapping wrapping) {
        // A thread a rank: no gain beyond a few dozen.
        const bool too_many = executor == ExecutorKind::kThreads && size > 64;
        if (size <= transport.max_world_size && !too_many)
          cases.push_back({name, executor, size, wrapping});
      };
      for (int size : sizes) add(size, Wrapping::kNone);
      for (int size : wrapped_sizes) {
        for (Wrapping wrapping : {Wrapping::kRecording, Wrapping::kFaultless, Wrapping::kBoth})
          add(size, wrapping);
      }
    }
  }
  return cases;
}

inline std::string CaseName(const testing::TestParamInfo<ConformanceCase>& info) {
  const bool processes = (*Transports().Find(info.param.transport))->processes != nullptr;
  return NameOf(info.param.wrapping) + info.param.transport + "_" +
         (processes ? "" : std::string(Name(info.param.executor)) + "_") +
         std::to_string(info.param.size);
}

// A number that all ranks share, wherever they live: in a page that processes of one machine map.
class SharedCounter {
 public:
  // Collective over the processes of a group; null: all ranks live in this process.
  explicit SharedCounter(ProcessGroup* group) {
    const bool first = group == nullptr || group->rank() == 0;
    std::string path = testing::TempDir() + "sumonce_counter_XXXXXX";
    int file = -1;
    if (first) {
      file = mkstemp(path.data());
      EXPECT_EQ(ftruncate(file, sizeof(std::atomic<int>)), 0);
    }
    if (group != nullptr) {
      EXPECT_EQ(group->Broadcast(path), absl::OkStatus());
    }
    if (!first) file = open(path.c_str(), O_RDWR);
    void* page =
        mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT_NE(page, MAP_FAILED) << path;
    close(file);
    value_ = static_cast<std::atomic<int>*>(page);
    ++*value_;
    if (first) {  // the file goes once all have opened it
      while (*value_ < (group == nullptr ? 1 : group->size())) usleep(100);
      unlink(path.c_str());
      *value_ = kOpen;
    }
    while (*value_ < kOpen) usleep(100);
  }
  ~SharedCounter() { munmap(value_, sizeof(std::atomic<int>)); }
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;

  void operator++() { ++*value_; }
  int value() const { return *value_ - kOpen; }

 private:
  static constexpr int kOpen = 1 << 20;
  std::atomic<int>* value_ = nullptr;
};

class ConformanceTest : public testing::TestWithParam<ConformanceCase> {
 protected:
  void SetUp() override {
    const absl::Status there =
        transport().processes ? transport().probe() : CanRun(transport(), size());
    if (!transport().processes) {
      if (!there.ok()) GTEST_SKIP() << there;
      return;
    }
    ASSERT_TRUE(there.ok()) << there;
    const absl::StatusOr<ProcessGroup*> group = transport().processes();
    ASSERT_TRUE(group.ok()) << group.status();
    group_ = *group;
    if (group_->size() < size())
      GTEST_SKIP() << size() << " ranks on " << group_->size() << " processes";
  }

  const Transport& transport() const { return **Transports().Find(GetParam().transport); }
  int size() const { return GetParam().size; }
  static bool native() { return std::getenv("SUMONCE_CONFORMANCE_NATIVE") != nullptr; }
  // Of a transport with a process per rank; else null.
  ProcessGroup* group() const { return group_; }
  // Of the world's ranks, those that live in this process.
  int ranks_here() const {
    if (group_ == nullptr) return size();
    return group_->rank() < size() ? 1 : 0;
  }

  bool wrapped() const { return GetParam().wrapping != Wrapping::kNone; }

  absl::Status Run(const RankBody& body) const { return RunSchedule(0, body); }
  absl::Status RunSchedule(uint64_t schedule, const RankBody& body) const {
    return RunOn(transport(), GetParam().executor, schedule, body);
  }
  absl::Status RunOn(const Transport& transport, ExecutorKind executor, uint64_t schedule,
                     const RankBody& body) const {
    RunOptions options{.world_size = size(), .native_sums = native()};
    options.executor.kind = executor;
    options.executor.schedule = schedule;
    std::atomic<int64_t> ticks = 0;
    CallRecorder recorder(size(), {.now_us = [&ticks] { return static_cast<double>(ticks++); }});
    return transport.run(options,
                         [&](Communicator& world) { return RunWrapped(recorder, world, body); });
  }

 private:
  absl::Status RunWrapped(CallRecorder& recorder, Communicator& world, const RankBody& body) const {
    const Wrapping wrapping = GetParam().wrapping;
    if (wrapping == Wrapping::kNone) return body(world);
    Communicator* inner = &world;
    std::unique_ptr<Communicator> recording;
    if (wrapping != Wrapping::kFaultless) {
      recording = recorder.Wrap(*inner);
      inner = recording.get();
    }
    if (wrapping == Wrapping::kRecording) return body(*inner);
    FaultInjector injector({}, group_ != nullptr);
    const std::unique_ptr<Communicator> faultless = injector.Wrap(*inner);
    SUMONCE_RETURN_IF_ERROR(body(*faultless));
    return injector.CheckAllActed();
  }

  ProcessGroup* group_ = nullptr;
};

template <typename T>
inline constexpr DType kDType = DType::kUint8;
template <>
inline constexpr DType kDType<double> = DType::kFloat64;
template <>
inline constexpr DType kDType<float> = DType::kFloat32;
template <>
inline constexpr DType kDType<Float16> = DType::kFloat16;
template <>
inline constexpr DType kDType<BFloat16> = DType::kBFloat16;
template <>
inline constexpr DType kDType<int64_t> = DType::kInt64;
template <>
inline constexpr DType kDType<int32_t> = DType::kInt32;

template <typename T>
Buffer BufferOf(std::vector<T>& values) {
  return {values.data(), static_cast<int64_t>(values.size()), kDType<T>};
}
template <typename T>
Buffer BufferOf(std::vector<T>& values, int64_t begin, int64_t count) {
  return {values.data() + begin, count, kDType<T>};
}

// Element `index` of `rank`: neighbours in rank cancel or drown each other, so that another order
// gives other bits.
template <typename T>
T InputOf(int rank, int64_t index) {
  static constexpr double kValues[] = {1e16, 1.0, -1e16, 0.1, 3e-5, -7.25, 1e8};
  const double value = kValues[(rank * 5 + index * 3) % 7];
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16::FromFloat(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, Float16>) {
    return {static_cast<uint16_t>(rank * 7919 + index * 31)};  // any bits: moved, never reduced
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>((rank + 1) * 7919 - index % 1000 * 104729 / 8);
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
std::vector<T> InputsOf(int rank, int64_t count) {
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = InputOf<T>(rank, i);
  return values;
}

// `count` elements behind `begin`, of what `rank` has.
template <typename T>
std::vector<T> InputsOf(int rank, int64_t begin, int64_t count) {
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = InputOf<T>(rank, begin + i);
  return values;
}

// The reduction as the contract words it, written as plainly as can be.
template <typename T>
T ExpectedReduction(ReduceOp op, int size, int64_t index) {
  constexpr bool kIsBFloat16 = std::is_same_v<T, BFloat16>;
  using Wide = std::conditional_t<kIsBFloat16, float, T>;
  const auto widened = [&](int rank) -> Wide {
    if constexpr (kIsBFloat16) {
      return InputOf<T>(rank, index).ToFloat();
    } else {
      return InputOf<T>(rank, index);
    }
  };
  // Integers wrap.
  const auto plus = [](Wide a, Wide b) -> Wide {
    if constexpr (std::is_integral_v<Wide>) {
      using Unsigned = std::make_unsigned_t<Wide>;
      return static_cast<Wide>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  };
  Wide total = widened(0);
  for (int rank = 1; rank < size; ++rank) {
    const Wide value = widened(rank);
    total = op == ReduceOp::kMax ? (value > total ? value : total) : plus(total, value);
  }
  if (op == ReduceOp::kAvg) total /= static_cast<Wide>(size);
  if constexpr (kIsBFloat16) {
    return BFloat16::FromFloat(total);
  } else {
    return total;
  }
}

// Rounding of one operation in T, relative.
template <typename T>
inline constexpr double kUnitRoundoff = 0;
template <>
inline constexpr double kUnitRoundoff<double> = 0x1p-53;
template <>
inline constexpr double kUnitRoundoff<float> = 0x1p-24;
template <>
inline constexpr double kUnitRoundoff<BFloat16> = 0x1p-9;

template <typename T>
double AsDouble(T value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return value.ToFloat();
  } else {
    return static_cast<double>(value);
  }
}

// Whether this is the sum or average of all ranks' element `index` in some order: off by at most
// gamma_{size + 1} of the terms' magnitudes (Higham, section 4.2).
template <typename T>
testing::AssertionResult InSomeOrder(ReduceOp op, int size, int64_t index, T actual) {
  double total = 0;
  double magnitude = 0;
  for (int rank = 0; rank < size; ++rank) {
    total += AsDouble(InputOf<T>(rank, index));
    magnitude += std::fabs(AsDouble(InputOf<T>(rank, index)));
  }
  const double scale = op == ReduceOp::kAvg ? size : 1;
  const double hu = (size + 1) * kUnitRoundoff<T>;
  const double allowed = (hu / (1 - hu) + size * 0x1p-53) * magnitude / scale;
  if (std::fabs(AsDouble(actual) - total / scale) <= allowed) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "element " << index << " is " << AsDouble(actual)
                                     << ", expected " << total / scale << " +- " << allowed;
}

template <typename T>
testing::AssertionResult SameBits(const std::vector<T>& actual, const std::vector<T>& expected) {
  if (actual.size() != expected.size()) return testing::AssertionFailure() << "other size";
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::memcmp(&actual[i], &expected[i], sizeof(T)) != 0) {
      return testing::AssertionFailure()
             << "element " << i << " of " << actual.size() << " differs";
    }
  }
  return testing::AssertionSuccess();
}

inline std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

// How a transport must fail: the same on every rank.
class FailureConformanceTest : public ConformanceTest {
 protected:
  // Runs a body whose status each rank is expected to see; returns the run's and checks that of
  // every rank.
  absl::Status RunSeeing(RunFailure kind, const RankBody& body) {
    std::atomic<int> seen = 0;
    const absl::Status result = Run([&](Communicator& world) {
      const absl::Status status = body(world);
      if (KindOf(status) == kind) ++seen;
      return status;
    });
    EXPECT_EQ(seen, ranks_here()) << result;
    EXPECT_EQ(KindOf(result), kind) << result;
    return result;
  }

  // The last rank makes `odd`, all others `usual`; `out` must stay as it was.
  std::string MismatchOf(const Call& usual, const Call& odd) {
    return MessageOf(RunSeeing(RunFailure::kCollectiveMismatch, [&](Communicator& world) {
      std::vector<double> in(64 * world.size(), 1.0);
      std::vector<double> out(64 * world.size(), -3.0);
      Call call = world.rank() == world.size() - 1 ? odd : usual;
      call.in.data = in.data();
      call.out.data = out.data();
      const absl::Status status = world.Run(call);
      EXPECT_EQ(out, std::vector<double>(out.size(), -3.0)) << "data moved";
      return status;
    }));
  }
};

inline Call MakeCall(CallKind kind, int64_t count, const std::string& label) {
  return {.kind = kind, .in = {nullptr, count}, .out = {nullptr, count}, .label = label};
}

}  // namespace sumonce

// What the conformance suites run over: every registered transport, executor and world size, and
// inputs in whose sums the order of the terms shows.
//
// A transport with a process per rank is run when SUMONCE_CONFORMANCE_TRANSPORT names it: then
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
#include "comm/communicator.h"
#include "comm/transport.h"
#include "gtest/gtest.h"

namespace sumonce {

struct ConformanceCase {
  std::string transport;
  ExecutorKind executor = ExecutorKind::kFibers;
  int size = 1;
};

inline void PrintTo(const ConformanceCase& parameters, std::ostream* out) {
  *out << parameters.transport << ", " << Name(parameters.executor) << ", " << parameters.size
       << " ranks";
}

inline std::vector<ConformanceCase> ConformanceCases(const std::vector<int>& sizes) {
  const char* named = std::getenv("SUMONCE_CONFORMANCE_TRANSPORT");
  std::vector<ConformanceCase> cases;
  for (const auto& [name, transport] : Transports().all()) {
    if (named != nullptr ? name != named : transport.processes != nullptr) continue;
    std::vector<ExecutorKind> executors = transport.executors;
    if (transport.processes) executors = {ExecutorKind::kThreads};  // which it ignores
    for (ExecutorKind executor : executors) {
      for (int size : sizes) {
        if (size <= transport.max_world_size) cases.push_back({name, executor, size});
      }
    }
  }
  return cases;
}

inline std::string CaseName(const testing::TestParamInfo<ConformanceCase>& info) {
  const bool processes = (*Transports().Find(info.param.transport))->processes != nullptr;
  return info.param.transport + "_" +
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
    const absl::Status there = transport().probe();
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

  absl::Status Run(const RankBody& body) const { return RunSchedule(0, body); }
  absl::Status RunSchedule(uint64_t schedule, const RankBody& body) const {
    RunOptions options{.world_size = size(), .native_sums = native()};
    options.executor.kind = GetParam().executor;
    options.executor.schedule = schedule;
    return transport().run(options, body);
  }

 private:
  ProcessGroup* group_ = nullptr;
};

template <typename T>
inline constexpr DType kDType = DType::kUint8;
template <>
inline constexpr DType kDType<double> = DType::kFloat64;
template <>
inline constexpr DType kDType<float> = DType::kFloat32;
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
  Wide total = widened(0);
  for (int rank = 1; rank < size; ++rank) {
    const Wide value = widened(rank);
    total =
        op == ReduceOp::kMax ? (value > total ? value : total) : static_cast<Wide>(total + value);
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

}  // namespace sumonce

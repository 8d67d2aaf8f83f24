#include "cli/interrupt.h"

#include <csignal>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

using ::testing::KilledBySignal;

constexpr char kAnswer[] = "stopping after this scenario; once more stops at once";

class Interrupt : public ::testing::Test {
 protected:
  void SetUp() override {
    for (size_t i = 0; i < 2; ++i) before_[i] = std::signal(kSignals[i], SIG_DFL);
  }
  void TearDown() override {
    for (size_t i = 0; i < 2; ++i) std::signal(kSignals[i], before_[i]);
  }

  static constexpr int kSignals[] = {SIGINT, SIGTERM};

 private:
  void (*before_[2])(int) = {};
};
using InterruptDeathTest = Interrupt;

TEST_F(Interrupt, TheFirstIsNotedAndAnsweredAtOnce) {
  const InterruptWatch watch;
  EXPECT_FALSE(watch.Interrupted());
  ::testing::internal::CaptureStderr();
  std::raise(SIGINT);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr(kAnswer));
  EXPECT_TRUE(watch.Interrupted());
}

// A scheduler's signal has no reader.
TEST_F(Interrupt, ATerminationIsNotedSilently) {
  const InterruptWatch watch;
  ::testing::internal::CaptureStderr();
  std::raise(SIGTERM);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(watch.Interrupted());
}

TEST_F(InterruptDeathTest, TheSecondEndsTheProcessWhicheverItIs) {
  for (const int first : kSignals) {
    for (const int second : kSignals) {
      const auto both = [&] {
        const InterruptWatch watch;
        std::raise(first);
        std::raise(second);
      };
      EXPECT_EXIT(both(), KilledBySignal(second), "") << first << " " << second;
    }
  }
}

TEST_F(Interrupt, WhatWasIgnoredStaysSo) {
  std::signal(SIGINT, SIG_IGN);
  const InterruptWatch watch;
  std::raise(SIGINT);
  EXPECT_FALSE(watch.Interrupted());
}

TEST_F(InterruptDeathTest, BehindItTheyEndTheProcess) {
  { const InterruptWatch watch; }
  EXPECT_EXIT(std::raise(SIGINT), KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace sumonce

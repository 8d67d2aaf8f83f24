#include "comm/mpi/referee.h"

#include "comm/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

using ::testing::HasSubstr;
using State = RankReport::State;

// A referee of two ranks, and what it says.
struct Game {
  absl::Status told;
  int64_t wave = 0;
  double now = 0;
  Referee referee{2,
                  {.stop = [this](const absl::Status& status) { told = status; },
                   .probe = [this](int64_t number) { wave = number; }}};

  void Idle() { referee.OnIdle(now += 1); }
  void Answer(int rank, State state, int64_t sent, int64_t received, int64_t waits = 0) {
    referee.OnReport(rank, {.state = state,
                            .wave = wave,
                            .sent = sent,
                            .received = received,
                            .waits = waits,
                            .waiting_for = "a call"});
  }
  void BothBlocked() {
    referee.OnNudge(0);
    referee.OnNudge(1);
    Idle();
  }
};

TEST(Referee, TwoStillWavesAreADeadlock) {
  Game game;
  game.BothBlocked();
  EXPECT_EQ(game.wave, 1);
  game.Answer(0, State::kBlocked, 3, 2);
  game.Answer(1, State::kBlocked, 2, 3);
  EXPECT_TRUE(game.told.ok()) << "one wave proves nothing: " << game.told;
  game.Idle();
  EXPECT_EQ(game.wave, 2);
  game.Answer(0, State::kBlocked, 3, 2);
  game.Answer(1, State::kBlocked, 2, 3);
  EXPECT_EQ(KindOf(game.told), RunFailure::kDeadlock);
  EXPECT_THAT(std::string(game.told.message()),
              HasSubstr("no rank can run:\n  rank 0 waits for a call\n  rank 1 waits for a call"));
}

TEST(Referee, AFrameUnderWayIsNoDeadlock) {
  Game game;
  game.BothBlocked();
  for (int wave = 0; wave < 3; ++wave) {
    game.Answer(0, State::kBlocked, 3, 2);
    game.Answer(1, State::kBlocked, 2, 2);
    game.Idle();
  }
  EXPECT_TRUE(game.told.ok()) << game.told;
  EXPECT_EQ(game.wave, 4) << "it goes on asking";
}

// Sums agree in each wave, yet something has happened in between.
TEST(Referee, WhatMovedBetweenTheWavesIsNoDeadlock) {
  for (const bool only_a_wait : {false, true}) {
    Game game;
    game.BothBlocked();
    game.Answer(0, State::kBlocked, 3, 2);
    game.Answer(1, State::kBlocked, 2, 3);
    game.Idle();
    game.Answer(0, State::kBlocked, only_a_wait ? 3 : 4, 2, only_a_wait);
    game.Answer(1, State::kBlocked, 2, only_a_wait ? 3 : 4);
    EXPECT_TRUE(game.told.ok()) << game.told;
  }
}

TEST(Referee, ARankThatRunsIsNotAskedUntilItBlocks) {
  Game game;
  game.referee.OnNudge(0);
  game.Idle();
  EXPECT_EQ(game.wave, 0);
  game.referee.OnNudge(1);
  game.Idle();
  EXPECT_EQ(game.wave, 1);
  game.Answer(0, State::kBlocked, 0, 0);
  game.Answer(1, State::kRunning, 0, 0);
  game.Idle();
  EXPECT_EQ(game.wave, 1);
}

TEST(Referee, ALateAnswerOfAnEarlierWaveDoesNotCount) {
  Game game;
  game.BothBlocked();
  game.referee.AskAll();
  game.referee.OnReport(0, {.state = State::kBlocked, .wave = 1, .waiting_for = ""});
  EXPECT_EQ(game.referee.Unanswered(), (std::vector<int>{0, 1}));
}

TEST(Referee, FinishedAndBlockedIsADeadlockThatNamesBoth) {
  Game game;
  game.referee.OnFinished(1, absl::OkStatus());
  game.referee.OnNudge(0);
  for (int wave = 0; wave < 2; ++wave) {
    game.Idle();
    game.Answer(0, State::kBlocked, 1, 0);
    game.Answer(1, State::kFinished, 0, 1);
  }
  EXPECT_THAT(std::string(game.told.message()), HasSubstr("\n  rank 1 has finished"));
}

// As in comm/wait_table.h: the first error that a rank returned, else what stopped the run.
TEST(Referee, TheFirstFailureIsTheResult) {
  Game game;
  game.referee.OnFinished(1, absl::DataLossError("rank 1's own"));
  EXPECT_EQ(game.told, absl::DataLossError("rank 1's own"));
  game.referee.OnStop(absl::AbortedError("too late"));
  game.referee.OnFinished(0, absl::CancelledError("told"));
  EXPECT_TRUE(game.referee.over());
  EXPECT_EQ(game.referee.result(), absl::DataLossError("rank 1's own"));

  Game aborted;
  aborted.referee.OnStop(absl::AbortedError("enough"));
  aborted.referee.OnFinished(0, absl::OkStatus());
  aborted.referee.OnFinished(1, absl::OkStatus());
  EXPECT_EQ(aborted.referee.result(), absl::AbortedError("enough"));
}

}  // namespace
}  // namespace sumonce

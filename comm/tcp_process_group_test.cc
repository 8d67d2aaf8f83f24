// Processes joined by TCP; a thread stands for each.
#include "comm/tcp_process_group.h"

#include <cstdlib>
#include <functional>
#include <map>
#include <thread>

#include "comm/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

// Runs `process` for each rank with its joined group; the statuses of Create, by rank.
std::vector<absl::Status> WithProcesses(std::vector<TcpOptions> options,
                                        const std::function<void(TcpProcessGroup&)>& process) {
  auto listener = Socket::Listen(0, true);
  EXPECT_TRUE(listener.ok()) << listener.status();
  const int port = listener->port();
  std::vector<absl::Status> created(options.size());
  std::vector<std::thread> threads;
  for (size_t k = 0; k < options.size(); ++k) {
    options[k].port = port;
    threads.emplace_back([&, k, mine = k == 0 ? *std::move(listener) : Socket()]() mutable {
      auto group = TcpProcessGroup::Create(options[k], std::move(mine));
      created[k] = group.status();
      if (group.ok()) process(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return created;
}

std::vector<TcpOptions> Processes(int size, int64_t limit_ms = 60'000) {
  std::vector<TcpOptions> all;
  for (int rank = 0; rank < size; ++rank) {
    all.push_back(
        {.rank = rank, .size = size, .connect_limit_ms = limit_ms, .silence_limit_ms = limit_ms});
  }
  return all;
}

TEST(TcpProcessGroup, MessagesReachAllAndComeBackInOrder) {
  for (int size : {1, 2, 5}) {
    const auto created = WithProcesses(Processes(size), [size](TcpProcessGroup& group) {
      EXPECT_EQ(group.size(), size);
      for (int round = 0; round < 3; ++round) {
        std::string message = group.rank() == 0 ? "round " + std::to_string(round) : "";
        EXPECT_EQ(group.Broadcast(message), absl::OkStatus());
        EXPECT_EQ(message, "round " + std::to_string(round));
        for (const char* part : {"first ", "second "}) {
          EXPECT_EQ(group.SendToRoot(part + std::to_string(group.rank())), absl::OkStatus());
        }
        if (group.rank() != 0) continue;
        for (int rank = size - 1; rank >= 0; --rank) {
          EXPECT_EQ(*group.ReceiveFrom(rank), "first " + std::to_string(rank));
          EXPECT_EQ(*group.ReceiveFrom(rank), "second " + std::to_string(rank));
        }
      }
    });
    for (const absl::Status& status : created) EXPECT_EQ(status, absl::OkStatus());
  }
}

TEST(TcpProcessGroup, LinksJoinEveryProcessToTheFirst) {
  WithProcesses(Processes(3), [](TcpProcessGroup& group) {
    for (int number = 0; number < kTcpLinks; ++number) {
      const std::string mine = std::to_string(group.rank()) + " " + std::to_string(number);
      EXPECT_EQ(group.own_link(number)->Send(mine, 60'000), absl::OkStatus());
    }
    if (group.rank() != 0) {
      EXPECT_EQ(group.link(0, 0), nullptr);
      return;
    }
    for (int rank = 2; rank >= 0; --rank) {
      for (int number = 0; number < kTcpLinks; ++number) {
        EXPECT_EQ(*group.link(rank, number)->Receive(60'000),
                  std::to_string(rank) + " " + std::to_string(number));
      }
    }
  });
}

TEST(TcpProcessGroup, AProcessThatEndsIsNamed) {
  WithProcesses(Processes(3), [](TcpProcessGroup& group) {
    if (group.rank() == 2) return;  // its connections close
    if (group.rank() == 1) {
      std::string message;
      EXPECT_EQ(KindOf(group.Broadcast(message)), RunFailure::kRankLost) << "process 0 gave up";
      return;
    }
    const absl::Status lost = group.ReceiveFrom(2).status();
    EXPECT_EQ(KindOf(lost), RunFailure::kRankLost);
    EXPECT_THAT(TextOf(lost), HasSubstr("the process of rank 2 closed its connection"));
    EXPECT_EQ(group.failure(), lost);
    std::string message = "of no more use";
    EXPECT_EQ(group.Broadcast(message), lost);
  });
}

TEST(TcpProcessGroup, ASilentProcessIsNamed) {
  WithProcesses(Processes(2), [](TcpProcessGroup& group) {
    EXPECT_EQ(group.failure(), absl::OkStatus());
    if (group.rank() == 0) group.SetTimeLimit(0.02);
    if (group.rank() == 1) {
      std::string message;
      EXPECT_EQ(KindOf(group.Broadcast(message)), RunFailure::kRankLost) << "process 0 gave up";
      return;
    }
    const absl::Status lost = group.ReceiveFrom(1).status();
    EXPECT_EQ(KindOf(lost), RunFailure::kRankLost);
    EXPECT_THAT(TextOf(lost), HasSubstr("the process of rank 1 was silent for 20 ms"));
  });
}

TEST(TcpProcessGroup, WhoDoesNotComeIsNamed) {
  auto listener = Socket::Listen(0, true);
  const absl::Status missing =
      TcpProcessGroup::Create({.rank = 0, .size = 3, .connect_limit_ms = 30}, *std::move(listener))
          .status();
  EXPECT_EQ(KindOf(missing), RunFailure::kRankLost);
  EXPECT_THAT(TextOf(missing), AllOf(HasSubstr("ranks 1 2 did not connect"), HasSubstr("30 ms")));
}

TEST(TcpProcessGroup, APortThatIsTakenSaysWhatToSet) {
  auto listener = Socket::Listen(0, true);
  const absl::Status taken =
      TcpProcessGroup::Create({.rank = 0, .size = 2, .port = listener->port()}).status();
  EXPECT_THAT(TextOf(taken), AllOf(HasSubstr("port " + std::to_string(listener->port())),
                                   HasSubstr("set MASTER_PORT to a free one")));
}

TEST(TcpProcessGroup, ContradictionsEndAll) {
  // Who has not been admitted yet when process 0 gives up cannot tell that from one that is late.
  constexpr int64_t kLimitMs = 2'000;
  std::vector<TcpOptions> options = Processes(2, kLimitMs);
  options[1].size = 3;
  for (const absl::Status& status : WithProcesses(options, [](TcpProcessGroup&) {})) {
    EXPECT_THAT(TextOf(status), HasSubstr("process 1 says that there are 3 processes, and process "
                                          "0 that there are 2"));
  }
  options = Processes(3, kLimitMs);
  options[2].rank = 1;
  const auto created = WithProcesses(options, [](TcpProcessGroup&) {});
  EXPECT_THAT(TextOf(created[0]), HasSubstr("two processes say that they are rank 1"));
}

// Whoever else connects is let go, and the processes find each other all the same.
TEST(TcpProcessGroup, StrangersAreLetGo) {
  auto listener = Socket::Listen(0, true);
  const int port = listener->port();
  auto stranger = Socket::Connect("127.0.0.1", port, 60'000);
  ASSERT_TRUE(stranger.ok());
  ASSERT_EQ(stranger->Send("GET / HTTP/1.1", 60'000), absl::OkStatus());
  std::thread other(
      [port] { EXPECT_TRUE(TcpProcessGroup::Create({.rank = 1, .size = 2, .port = port}).ok()); });
  EXPECT_TRUE(
      TcpProcessGroup::Create({.rank = 0, .size = 2, .port = port}, *std::move(listener)).ok());
  other.join();
}

// Sets variables, and unsets all that a launcher may set, for one test.
class TcpEnvironment : public testing::Test {
 protected:
  void SetUp() override { Set({}); }
  void TearDown() override { Set({}); }
  void Set(const std::map<std::string, std::string>& variables) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK",
          "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "TORCHELASTIC_USE_AGENT_STORE"})
      unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
};

TEST_F(TcpEnvironment, Torchrun) {
  Set({{"RANK", "5"},
       {"WORLD_SIZE", "8"},
       {"LOCAL_RANK", "1"},
       {"MASTER_ADDR", "node0"},
       {"MASTER_PORT", "1234"}});
  const auto options = TcpOptionsFromEnvironment();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->rank, 5);
  EXPECT_EQ(options->size, 8);
  EXPECT_EQ(options->local_rank, 1);
  EXPECT_EQ(options->address, "node0");
  EXPECT_EQ(options->port, 1234);
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  EXPECT_EQ(TcpOptionsFromEnvironment()->port, 1235) << "the agent listens on the other";
}

TEST_F(TcpEnvironment, Mpirun) {
  Set({{"OMPI_COMM_WORLD_RANK", "2"},
       {"OMPI_COMM_WORLD_SIZE", "4"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  const auto options = TcpOptionsFromEnvironment();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->rank, 2);
  EXPECT_EQ(options->size, 4);
  EXPECT_EQ(options->local_rank, 0);
  EXPECT_EQ(options->address, "127.0.0.1");
  EXPECT_EQ(options->port, 29500);
}

TEST_F(TcpEnvironment, NoLauncherAndWrongValues) {
  EXPECT_EQ(TcpOptionsFromEnvironment().status().code(), absl::StatusCode::kNotFound);
  const auto expect_refused = [this](std::map<std::string, std::string> with,
                                     const std::string& text) {
    with.insert({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
    Set(with);
    const absl::Status refused = TcpOptionsFromEnvironment().status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(TextOf(refused), HasSubstr(text));
  };
  expect_refused({{"RANK", "2"}}, "RANK is '2', expected a number from 0 to 1");
  expect_refused({{"RANK", "1x"}}, "RANK is '1x'");
  expect_refused({{"WORLD_SIZE", "0"}}, "WORLD_SIZE is '0', expected a number from 1 to");
  expect_refused({{"MASTER_PORT", "70000"}}, "MASTER_PORT is '70000'");
  expect_refused({{"LOCAL_RANK", "-1"}}, "LOCAL_RANK is '-1'");
}

}  // namespace
}  // namespace sumonce

#include "comm/socket.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

using ::testing::HasSubstr;

std::string MessageIn(const absl::Status& status) { return std::string(status.message()); }

TEST(Socket, MessagesArriveWholeAndInOrder) {
  auto pair = Socket::Pair();
  ASSERT_TRUE(pair.ok());
  const std::string large(3'000'001, 'x');
  std::thread sender([&] {
    EXPECT_EQ(pair->first.Send("", 60'000), absl::OkStatus());
    EXPECT_EQ(pair->first.Send(large, 60'000), absl::OkStatus());
    EXPECT_EQ(pair->first.Send(std::string("a\0b", 3), 60'000), absl::OkStatus());
  });
  EXPECT_EQ(*pair->second.Receive(60'000), "");
  EXPECT_EQ(*pair->second.Receive(60'000), large);
  EXPECT_EQ(*pair->second.Receive(60'000), std::string("a\0b", 3));
  sender.join();
  EXPECT_FALSE(pair->second.Readable());
}

TEST(Socket, SilenceAndTheEndAreToldApart) {
  auto pair = Socket::Pair();
  ASSERT_TRUE(pair.ok());
  EXPECT_EQ(pair->first.Receive(10).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(pair->first.Readable());
  pair->second.Close();
  EXPECT_TRUE(pair->first.Readable());
  const absl::Status end = pair->first.Receive(60'000).status();
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageIn(end), HasSubstr("closed its connection"));
  EXPECT_EQ(pair->first.Send("to nobody", 60'000).code(), absl::StatusCode::kUnavailable);
}

// Connects to the listener as somebody who does not speak our way.
int ConnectRaw(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

// A length that no message has is refused before memory is taken for it; a message that breaks off
// is the end.
TEST(Socket, WhatIsNoMessageIsRefused) {
  auto listener = Socket::Listen(0, true);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const int stranger = ConnectRaw(listener->port());
  auto accepted = listener->Accept(60'000);
  ASSERT_TRUE(accepted.ok());
  ASSERT_EQ(write(stranger, "GET / HTTP/1.1\r\n", 16), 16);
  const absl::Status refused = accepted->Receive(60'000).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss) << refused;
  const int breaks_off = ConnectRaw(listener->port());
  auto second = listener->Accept(60'000);
  ASSERT_TRUE(second.ok());
  ASSERT_EQ(write(breaks_off, "\x10\0\0\0\0\0\0\0only some", 17), 17);
  close(breaks_off);
  EXPECT_EQ(second->Receive(60'000).status().code(), absl::StatusCode::kUnavailable);
  close(stranger);
}

TEST(Socket, NobodyListensIsAnErrorAfterTheLimit) {
  auto listener = Socket::Listen(0, true);
  ASSERT_TRUE(listener.ok());
  const int port = listener->port();
  listener->Close();
  const absl::Status refused = Socket::Connect("127.0.0.1", port, 40).status();
  EXPECT_THAT(MessageIn(refused), HasSubstr("connecting to 127.0.0.1:" + std::to_string(port)));
  EXPECT_EQ(Socket::Connect("no.such.host.invalid", port, 40).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Socket, TheFirstReadableIsFound) {
  auto a = Socket::Pair();
  auto b = Socket::Pair();
  ASSERT_TRUE(a.ok() && b.ok());
  const std::vector<Socket*> both = {&a->first, &b->first};
  EXPECT_EQ(Socket::WaitForAny(both, 10).status().code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_EQ(b->second.Send("here", 60'000), absl::OkStatus());
  EXPECT_EQ(*Socket::WaitForAny(both, 60'000), 1u);
  a->second.Close();
  EXPECT_EQ(*Socket::WaitForAny(both, 60'000), 0u);
}

}  // namespace
}  // namespace sumonce

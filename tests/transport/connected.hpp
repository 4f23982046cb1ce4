// Makes two connected sockets.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <utility>

#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::test {

inline std::pair<transport::tcp::Socket, transport::tcp::Socket> connected() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {transport::tcp::Socket(ends[0]), transport::tcp::Socket(ends[1])};
}

}  // namespace gradwire::test

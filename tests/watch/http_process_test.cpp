// Tests that the HTTP server does not disturb forked children, sockets and signals of the job, or the end of the
// process.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "gradwire/session.hpp"
#include "http_children.hpp"
#include "observe/record.hpp"
#include "observe/watching.hpp"
#include "tests/support/http_get.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"
#include "watch/textfile.hpp"

namespace {
// Simulates a call of the job on another thread while the server starts, at a fixed time: when this process reads the
// action of SIGPIPE for the second time.
std::atomic<int> g_looks_at_pipe{0};
void (*g_at_second_look)() = nullptr;
}  // namespace

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
constexpr bool kSeesLooks = true;
// Replaces sigaction() of the C library for this whole process.
extern "C" int sigaction(int sig, const struct sigaction* act, struct sigaction* oact) noexcept {
  static const auto real = reinterpret_cast<decltype(&sigaction)>(::dlsym(RTLD_NEXT, "sigaction"));
  if (sig == SIGPIPE && act == nullptr && ++g_looks_at_pipe == 2 && g_at_second_look != nullptr) {
    g_at_second_look();
  }
  return real(sig, act, oact);
}
#else
constexpr bool kSeesLooks = false;
#endif

namespace gradwire::watch {
namespace {

// This holds whatever the parent's threads did at that time, and however long the child lives.
TEST_F(Http, AChildThatForksOffServesNothing) {
  const std::uint16_t port = free_ports();
  int says[2];
  int lives[2];  // a pipe that stays open while this process lives
  ASSERT_EQ(::pipe(says) + ::pipe(lives), 0);
  const pid_t parent = start_child(http(port), [&] {
    serve_rank(0);
    if (page_at(port).find("gradwire_info") == std::string::npos) {
      std::_Exit(1);
    }
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ::alarm(60);
      char byte = listening().empty() ? 'y' : 'n';
      static_cast<void>(::write(says[1], &byte, 1));
      ::close(lives[1]);
      static_cast<void>(::read(lives[0], &byte, 1));
      std::_Exit(0);
    }
    std::_Exit(grandchild > 0 ? 0 : 2);
  });
  ::close(says[1]);
  EXPECT_EQ(status_of(parent), 0);
  char result = 0;
  EXPECT_EQ(::read(says[0], &result, 1), 1);
  EXPECT_EQ(result, 'y');
  const int again = listen_on(port);
  EXPECT_GE(again, 0) << "the child keeps the port";
  for (const int descriptor : {again, says[0], lives[0], lives[1]}) {
    ::close(descriptor);
  }
}

// The job may listen on the same port of another address.
TEST_F(Http, AChildThatForksOffKeepsTheJobsSockets) {
  const std::uint16_t port = free_ports();
  const pid_t parent = start_child(http(port), [&] {
    sockaddr_in other{};
    other.sin_family = AF_INET;
    other.sin_port = htons(port);
    other.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    const int jobs = ::socket(AF_INET, SOCK_STREAM, 0);
    constexpr int kHigh = 300;  // the server's descriptor is lower
    if (::bind(jobs, reinterpret_cast<sockaddr*>(&other), sizeof other) != 0 || ::listen(jobs, 1) != 0 ||
        ::dup2(jobs, kHigh) != kHigh) {
      std::_Exit(1);
    }
    ::close(jobs);
    serve_rank(0);
    if (page_at(port).find("gradwire_info") == std::string::npos) {
      std::_Exit(2);
    }
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      std::_Exit(listening() == std::vector<std::string>{"0200007F"} ? 0 : 3);
    }
    std::_Exit(status_of(grandchild));
  });
  EXPECT_EQ(status_of(parent), 0);
}

// A client that says nothing, or reads nothing, occupies a thread of the server.
TEST_F(Http, ClientsThatHangKeepNoProcessFromItsEnd) {
  const std::uint16_t port = free_ports();
  const pid_t child = start_child(http(port), [&] {
    serve_rank(0);
    static_cast<void>(page_at(port));
    for (int i = 0; i < 4; ++i) {
      static_cast<void>(connect_to(port));
    }
    const int half = connect_to(port);
    static_cast<void>(::send(half, "GET /metrics HTTP/1.0\r\n", 23, MSG_NOSIGNAL));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::exit(0);
  });
  while (connect_to(port) < 0) {
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(status_of(child), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1500));
}

TEST_F(Http, SignalsStayTheJobs) {
  const std::uint16_t port = free_ports();
  const pid_t child = start_child(http(port), [&] {
    serve_rank(0);
    static_cast<void>(page_at(port));
    // The server ignores SIGPIPE for the whole process when it starts, and this is undone.
    struct sigaction pipe {};
    for (int i = 0; i < 1000 && (i == 0 || pipe.sa_handler != SIG_DFL); ++i) {
      ::sigaction(SIGPIPE, nullptr, &pipe);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (pipe.sa_handler != SIG_DFL) {
      std::_Exit(1);
    }
    for (int i = 0; i < 20; ++i) {  // clients that leave before the answer
      const int client = connect_to(port);
      static_cast<void>(::send(client, "GET /metrics HTTP/1.0\r\n\r\n", 25, MSG_NOSIGNAL));
      const linger now{1, 0};
      ::setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
      ::close(client);
    }
    std::_Exit(page_at(port).find("gradwire_info") != std::string::npos ? 0 : 2);
  });
  EXPECT_EQ(status_of(child), 0);
}

TEST_F(Http, WhatTheJobSetsWhileTheServerStartsStays) {
  if (!kSeesLooks) {
    GTEST_SKIP() << "the sanitizer has this function";
  }
  const std::uint16_t port = free_ports();
  const pid_t child = start_child(http(port), [&] {
    g_looks_at_pipe = 0;
    g_at_second_look = [] { ::signal(SIGPIPE, SIG_IGN); };
    serve_rank(0);
    static_cast<void>(page_at(port));
    for (int i = 0; i < 1000 && g_looks_at_pipe < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    struct sigaction pipe {};
    const int looks = g_looks_at_pipe;
    ::sigaction(SIGPIPE, nullptr, &pipe);
    std::_Exit(looks < 2 ? 1 : pipe.sa_handler != SIG_IGN ? 2 : 0);
  });
  EXPECT_EQ(status_of(child), 0);
}

}  // namespace
}  // namespace gradwire::watch

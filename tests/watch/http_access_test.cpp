// Tests that only clients with the token read metrics over HTTP, and that any request costs bounded memory and time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "http_children.hpp"
#include "observe/collector.hpp"
#include "observe/watching.hpp"
#include "tests/support/scratch_folder.hpp"
#include "watch/live/fetch.hpp"
#include "watch/live/http_reader.hpp"

namespace gradwire::watch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

constexpr const char* kToken = "0123456789abcdef0123";

using Clock = std::chrono::steady_clock;

// Sends the bytes and returns all of the answer: "" if the server closes without one, or says nothing for 6 s.
std::string answer_to(std::uint16_t port, const std::string& request) {
  const int descriptor = connect_to(port);
  if (descriptor < 0) {
    return "refused";
  }
  const timeval limit{6, 0};
  ::setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  return gradwire::test::exchange_bytes(descriptor, request);
}

std::string get(const std::string& headers) { return "GET /metrics HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n"; }

// The status of an answer: "200"; "" for none.
std::string status_in(const std::string& answer) { return answer.starts_with("HTTP/1.") ? answer.substr(9, 3) : ""; }

// Resident memory of this process, in KiB.
long resident() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmRSS:")) {
      return std::atol(line.c_str() + 6);
    }
  }
  return 0;
}

std::string token_file(const ScratchFolder& folder, mode_t mode = 0600) {
  const std::string file = folder.file("token");
  std::ofstream(file) << kToken << "\n";
  ::chmod(file.c_str(), mode);
  ::setenv("GRADWIRE_METRICS_TOKEN", ("file:" + file).c_str(), 1);
  return file;
}

// Runs `body` in a child that serves rank 0 at the port, and returns the child's status: 0 if nothing failed.
template <typename Body>
int served(std::uint16_t port, Body&& body) {
  const pid_t child = start_child(http(port), [&] {
    serve_rank(0);
    observe::collect();
    page_at(port);
    body();
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  });
  return status_of(child);
}

// Mutations tried: the header is not compared; a prefix of the token is enough; a second header is ignored.
TEST_F(Http, OnlyThoseWithTheTokenReadMetrics) {
  const ScratchFolder folder;
  const std::uint16_t port = free_ports();
  const pid_t child = start_child(http(port), [&] {
    token_file(folder);
    serve_rank(0);
    observe::collect();
    const std::string token = kToken;
    for (const std::string& headers :
         std::vector<std::string>{"", "Authorization: Bearer \r\n", "Authorization: Bearer x\r\n",
                                  "Authorization: Bearer " + token.substr(1) + "\r\n",
                                  "Authorization: Bearer " + token.substr(0, token.size() - 1) + "\r\n",
                                  "Authorization: Bearer " + token + "x\r\n", "Authorization: " + token + "\r\n",
                                  "Authorization: Basic " + token + "\r\n", "X-Authorization: Bearer " + token + "\r\n",
                                  "Authorization: Bearer x\r\nAuthorization: Bearer " + token + "\r\n",
                                  "Authorization: Bearer " + token + "\r\nAuthorization: Bearer x\r\n"}) {
      const std::string answer = answer_to(port, get(headers));
      EXPECT_EQ(status_in(answer), "401") << headers;
      EXPECT_THAT(answer, AllOf(HasSubstr("WWW-Authenticate: Bearer"), HasSubstr("need the token in the file that"),
                                Not(HasSubstr("gradwire_info")), Not(HasSubstr(token))));
    }
    for (const std::string& headers :
         {"Authorization: Bearer " + token + "\r\n", "authorization: bearer " + token + "\r\n"}) {
      const std::string answer = answer_to(port, get(headers));
      EXPECT_EQ(status_in(answer), "200") << headers;
      EXPECT_THAT(answer, HasSubstr("gradwire_info"));
    }
    EXPECT_EQ(status_in(answer_to(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")), "401") << "other pages say no more";
    MetricsTarget::Http target;
    target.port = port;
    const live::FolderSnapshot seen = live::HttpReader(target, token).read();
    EXPECT_EQ(seen.ranks.size(), 1U) << seen.problem;
    EXPECT_THAT(live::HttpReader(target, "").read().problem, HasSubstr("it says 401 Unauthorized: These metrics need"));
    std::_Exit(HasFailure() ? 1 : 0);
  });
  EXPECT_EQ(status_of(child), 0);
}

// Answers one request at the socket with `body`, and returns the request.
std::string answer_once(int descriptor, const std::string& body) {
  const int connection = ::accept(descriptor, nullptr, nullptr);
  std::string request(4096, '\0');
  request.resize(static_cast<std::size_t>(std::max<ssize_t>(::recv(connection, request.data(), request.size(), 0), 0)));
  const std::string answer = "HTTP/1.0 200 OK\r\n\r\n" + body;
  ::send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
  ::close(connection);
  return request;
}

// Rank 1 runs on another host, so its port is free here, and somebody else takes it.
TEST_F(Http, AnotherUserAtThePortOfARankGetsNoToken) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root, to listen as another user";
  }
  const std::uint16_t port = free_ports(2);
  const auto next = static_cast<std::uint16_t>(port + 1);
  const int own = listen_on(port);
  const pid_t child = start_child([&] {
    static_cast<void>(::setuid(12345));
    const int taken = listen_on(next);
    std::_Exit(answer_once(taken, "").find(kToken) == std::string::npos ? 0 : 1);
  });
  const auto end = Clock::now() + 10s;
  while (!live::user_of_loopback(next) && Clock::now() < end) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(live::user_of_loopback(port), std::optional<std::uint32_t>(0));
  EXPECT_EQ(live::user_of_loopback(next), std::optional<std::uint32_t>(12345));
  const char* const labels = "{part=\"library\",rank=\"0\",gradwire_job=\"tried\"}";
  std::thread rank_0([&] {
    static_cast<void>(
        answer_once(own, std::string("# TYPE gradwire_world_size gauge\ngradwire_world_size") + labels + " 2\n"));
  });
  MetricsTarget::Http target;
  target.port = port;
  target.add_rank = true;
  const live::FolderSnapshot seen = live::HttpReader(target, kToken).read();
  rank_0.join();
  ::close(own);
  EXPECT_EQ(seen.ranks.size(), 1U) << seen.problem;
  ASSERT_EQ(seen.skipped.size(), 1U);
  EXPECT_THAT(seen.skipped[0].reason, AllOf(HasSubstr("user 12345"), HasSubstr("does not get the token")));
  ::close(connect_to(next));  // ends the child where nothing was sent
  EXPECT_EQ(status_of(child), 0) << "it got the token";
}

// Mutation tried: the server starts without a token where the file cannot be used.
TEST_F(Http, WithoutAUsableTokenNothingIsServed) {
  const ScratchFolder folder;
  const std::uint16_t port = free_ports();
  const pid_t child = start_child(http(port), [&] {
    token_file(folder, 0640);
    std::string told;
    serve_rank(0, &told);
    observe::collect();
    EXPECT_THAT(told, AllOf(HasSubstr("metrics over HTTP: token file " + folder.file("token") + ": its mode is 0640"),
                            HasSubstr("chmod 600"), HasSubstr("The job goes on without"), Not(HasSubstr(kToken))));
    EXPECT_TRUE(listening().empty());
    std::_Exit(HasFailure() ? 1 : 0);
  });
  EXPECT_EQ(status_of(child), 0);
}

// Mutation tried: requests of any method and size are left to the server.
TEST_F(Http, OtherRequestsAreRefused) {
  const std::uint16_t port = free_ports();
  const int ended = served(port, [&] {
    const auto expect = [&](const std::string& request, const std::string& status) {
      const auto begin = Clock::now();
      EXPECT_EQ(status_in(answer_to(port, request)), status) << request.substr(0, 60);
      EXPECT_LT(Clock::now() - begin, 5s) << request.substr(0, 60);
    };
    expect("POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\nabc", "413");
    expect("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "413");
    expect("POST /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\nabc", "413");
    expect("POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "405");
    expect("DELETE /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "405");
    expect("GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\nabc", "413");
    expect("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "404");
    expect("GET /metrics/../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", "404");
    expect("GET /etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", "404");
    for (const std::string& broken :
         {std::string("\0\1\2\3\r\n\r\n", 8), std::string("GET /metrics\r\n\r\n"), std::string("GET\r\n\r\n"),
          "GET /" + std::string(100'000, 'x') + " HTTP/1.1\r\n\r\n",
          "GET /metrics HTTP/1.1\r\nHost: a\r\nX: " + std::string(1'000'000, 'x') + "\r\n\r\n"}) {
      const auto begin = Clock::now();
      EXPECT_THAT(answer_to(port, broken), Not(HasSubstr("gradwire_info"))) << broken.substr(0, 60);
      EXPECT_LT(Clock::now() - begin, 5s) << broken.substr(0, 60);
    }
    EXPECT_EQ(status_in(answer_to(port, get(""))), "200");
  });
  EXPECT_EQ(ended, 0);
}

// Clients that send a byte now and then, of the head or of a body that nobody wants, keep a thread only until its time
// is over. Mutations tried: the limit is 60 s; the server reads bodies.
TEST_F(Http, SlowClientsAreEnded) {
  const std::uint16_t port = free_ports();
  const int ended = served(port, [&] {
    std::vector<std::jthread> slow;
    for (int i = 0; i < 14; ++i) {  // more than there are threads
      slow.emplace_back([&, i](const std::stop_token& stop) {
        const int descriptor = connect_to(port);
        const std::string head = "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n";
        if (i % 2 == 0) {
          ::send(descriptor, head.data(), head.size(), MSG_NOSIGNAL);
        }
        const std::string request = get("X: " + std::string(1000, 'x') + "\r\n");
        for (std::size_t at = 0; at < request.size() && !stop.stop_requested(); ++at) {
          if (::send(descriptor, &request[at], 1, MSG_NOSIGNAL) != 1) {
            break;
          }
          std::this_thread::sleep_for(100ms);
        }
        ::close(descriptor);
      });
    }
    std::this_thread::sleep_for(200ms);
    const auto begin = Clock::now();
    EXPECT_EQ(status_in(answer_to(port, get(""))), "200");
    EXPECT_LT(Clock::now() - begin, 6s) << "three turns of slow clients at most";
  });
  EXPECT_EQ(ended, 0);
}

TEST_F(Http, ManyConnectionsTakeLittleMemory) {
  const std::uint16_t port = free_ports();
  const int ended = served(port, [&] {
    const long before = resident();
    std::vector<int> many;
    for (int i = 0; i < 300; ++i) {
      const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      const sockaddr_in address = gradwire::test::loopback(port);
      static_cast<void>(::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address));
      many.push_back(descriptor);
    }
    std::this_thread::sleep_for(200ms);
    EXPECT_LT(resident() - before, 16 << 10) << "KiB";
    for (const int each : many) {
      ::close(each);
    }
    std::string status;
    for (const auto begin = Clock::now(); status != "200" && Clock::now() - begin < 8s;) {
      status = status_in(answer_to(port, get("")));
    }
    EXPECT_EQ(status, "200") << "once the many have gone";
  });
  EXPECT_EQ(ended, 0);
}

}  // namespace
}  // namespace gradwire::watch

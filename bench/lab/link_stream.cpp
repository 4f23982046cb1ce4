// Measures the goodput of a link: one TCP connection that sends in both directions at once.
//   link_stream listen PORT [SECONDS]          on one host
//   link_stream connect ADDRESS PORT [SECONDS] on the other
// Each side sends as fast as it can and counts what it receives, after a settling time. The connecting side prints one
// line: "OUT IN", the goodput of each direction in bytes per second as seen by its receiver.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kWarmUpSeconds = 0.5;  // covers slow start and the token bucket's first burst
constexpr double kWindowSeconds = 0.2;
constexpr std::size_t kBufferBytes = 256 << 10;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

sockaddr_in address(const char* host, const char* port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
  if (inet_pton(AF_INET, host, &result.sin_addr) != 1) {
    throw std::runtime_error(std::string("\"") + host + "\" is no IPv4 address");
  }
  return result;
}

int accept_one(const char* port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const sockaddr_in any = address("0.0.0.0", port);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 || listen(listener, 1) != 0) {
    fail(std::string("listen on port ") + port);
  }
  const int connection = accept(listener, nullptr, nullptr);
  if (connection < 0) {
    fail("accept");
  }
  close(listener);
  return connection;
}

// The other side may need a moment to listen.
int connect_to(const char* host, const char* port) {
  const sockaddr_in peer = address(host, port);
  for (const auto start = Clock::now(); seconds_since(start) < 10;) {
    const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(connection, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) == 0) {
      return connection;
    }
    close(connection);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  fail(std::string("connect to ") + host);
}

void send_for(int connection, double seconds) {
  const std::vector<char> data(kBufferBytes, 'g');
  for (const auto start = Clock::now(); seconds_since(start) < seconds + kWarmUpSeconds;) {
    if (send(connection, data.data(), data.size(), MSG_NOSIGNAL) < 0) {
      fail("send");
    }
  }
  shutdown(connection, SHUT_WR);
}

// Returns the goodput after the warm-up. It takes the median over windows, so that it is not lowered when another
// process has the core for a moment. It reads to the end, so that the peer's sends never fail.
double receive_for(int connection, double seconds) {
  std::vector<char> data(kBufferBytes);
  std::vector<double> rates;
  const auto start = Clock::now();
  double bytes = 0, window = kWarmUpSeconds;  // bytes since the window began
  for (ssize_t got = 0; (got = recv(connection, data.data(), data.size(), 0)) != 0;) {
    if (got < 0) {
      fail("receive");
    }
    const double now = seconds_since(start);
    bytes += static_cast<double>(got);
    if (now - window < kWindowSeconds) {
      bytes = now < window ? 0 : bytes;
      continue;
    }
    if (now <= kWarmUpSeconds + seconds + kWindowSeconds) {
      rates.push_back(bytes / (now - window));
    }
    window = now;
    bytes = 0;
  }
  std::sort(rates.begin(), rates.end());
  return rates.empty() ? 0 : rates[rates.size() / 2];
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const bool listens = mode == "listen" && argc >= 3;
  if (!listens && !(mode == "connect" && argc >= 4)) {
    std::fprintf(stderr, "usage: link_stream listen PORT [SECONDS] | link_stream connect ADDRESS PORT [SECONDS]\n");
    return 2;
  }
  const int seconds_at = listens ? 3 : 4;
  const double seconds = argc > seconds_at ? std::stod(argv[seconds_at]) : 2.0;
  // One connection carries the streams, a second one the listener's result.
  const int stream = listens ? accept_one(argv[2]) : connect_to(argv[2], argv[3]);
  double received = 0;
  std::thread sender([&] { send_for(stream, seconds); });
  received = receive_for(stream, seconds);
  sender.join();
  close(stream);
  double peer_received = 0;
  const int report = listens ? accept_one(argv[2]) : connect_to(argv[2], argv[3]);
  if (listens) {
    if (send(report, &received, sizeof received, MSG_NOSIGNAL) != sizeof received) {
      fail("send the result");
    }
  } else if (recv(report, &peer_received, sizeof peer_received, MSG_WAITALL) != sizeof peer_received) {
    fail("receive the result");
  }
  close(report);
  if (!listens) {
    std::printf("%.0f %.0f\n", peer_received, received);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "link_stream: %s\n", error.what());
    return 1;
  }
}

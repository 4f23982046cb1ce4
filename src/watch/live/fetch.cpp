#include "watch/live/fetch.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/text.hpp"
#include "base/unix_socket.hpp"
#include "gradwire/error.hpp"
#include "watch/live/prometheus_text.hpp"
#include "watch/whole_file.hpp"

namespace gradwire::watch::live {
namespace {

constexpr std::chrono::seconds kAnswerLimit{2};
constexpr std::size_t kMostAnswer = std::size_t{16} << 20;

[[noreturn]] void refuse_answer(const std::string& why) { throw Error(ErrorCode::invalid_argument, why); }

// Sends a request for metrics and returns the body of the answer.
std::string ask(int descriptor, const std::string& host, const std::string& token, Deadline deadline) {
  const std::string request = "GET /metrics HTTP/1.0\r\nHost: " + host + "\r\n" +
                              (token.empty() ? "" : "Authorization: Bearer " + token + "\r\n") + "\r\n";
  if (!send_before(descriptor, request, deadline)) {
    refuse_answer("it takes no request");
  }
  std::string answer;
  while (receive_before(descriptor, answer, kMostAnswer, deadline)) {
  }
  const std::size_t head = answer.find("\r\n\r\n");
  const std::size_t status = answer.find(' ');
  if (!answer.starts_with("HTTP/1.") || head == std::string::npos || status + 4 > head) {
    refuse_answer("it gives no answer");
  }
  std::string body = answer.substr(head + 4);
  if (answer.compare(status + 1, 3, "200") != 0) {
    constexpr std::size_t kShown = 160;
    refuse_answer("it says " + text::printable(answer.substr(status + 1, answer.find("\r\n") - status - 1) + ": " +
                                               body.substr(0, std::min(body.find('\n'), kShown))));
  }
  return body;
}

struct FreesAddress {
  void operator()(addrinfo* found) const noexcept { ::freeaddrinfo(found); }
};

void connect_before(int descriptor, const addrinfo& to, Deadline deadline) {
  if (::connect(descriptor, to.ai_addr, to.ai_addrlen) == 0) {
    return;
  }
  int problem = errno;
  if (problem == EINPROGRESS) {
    socklen_t size = sizeof problem;
    problem = ETIMEDOUT;
    if (wait_before(descriptor, POLLOUT, deadline)) {
      ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &problem, &size);
    }
  }
  if (problem != 0) {
    refuse_answer("nobody serves metrics there (" + text::reason_of(problem) + ")");
  }
}

}  // namespace

std::vector<RankValues> ranks_in(std::string_view text, double written) {
  std::string whole(text);
  if (!whole.ends_with("# EOF\n")) {
    whole += "# EOF\n";  // the HTTP server leaves it out
  }
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<TextSample>> by_rank;
  for (TextSample& sample : parse_metrics(whole)) {
    const auto label = [&](std::string_view name) { return std::string(sample.label(name)); };
    if (!label("rank").empty()) {  // samples without a rank describe the server itself
      by_rank[{label("gradwire_job"), label("part"), label("rank")}].push_back(std::move(sample));
    }
  }
  if (by_rank.empty()) {
    refuse_answer("there is no metric of gradwire in it");
  }
  std::vector<RankValues> ranks;
  for (const auto& [name, samples] : by_rank) {
    ranks.push_back(rank_values(samples, written));
  }
  return ranks;
}

std::string fetch(const std::filesystem::path& socket) {
  const Descriptor connection(connect_to(socket));
  if (connection.get() < 0) {
    refuse_answer(errno == ECONNREFUSED ? "nobody listens there: its process was killed" : text::reason_of(errno));
  }
  return ask(connection.get(), "localhost", "", std::chrono::steady_clock::now() + kAnswerLimit);
}

std::string fetch(const std::string& address, std::uint16_t port, const std::string& token) {
  const Deadline deadline = std::chrono::steady_clock::now() + kAnswerLimit;
  const bool brackets = address.starts_with('[');
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(brackets ? address.substr(1, address.size() - 2).c_str() : address.c_str(),
                                  std::to_string(port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, FreesAddress> to(error == 0 ? found : nullptr);
  if (!to) {
    refuse_answer(::gai_strerror(error));
  }
  const Descriptor connection(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connection.get() < 0) {
    refuse_answer(text::reason_of(errno));
  }
  connect_before(connection.get(), *to, deadline);
  return ask(connection.get(), address + ":" + std::to_string(port), token, deadline);
}

std::optional<std::uint32_t> user_of_loopback(std::uint16_t port) {
  std::array<char, 8> digits{};
  std::snprintf(digits.data(), digits.size(), ":%04X", static_cast<unsigned>(port));  // NOLINT: variable arguments
  const std::string behind = digits.data();
  // A socket that listens at this address is preferred by the kernel to one that listens at all addresses.
  for (const auto& [file, address] :
       {std::pair{"/proc/self/net/tcp", std::string("0100007F")}, std::pair{"/proc/self/net/tcp", std::string(8, '0')},
        std::pair{"/proc/self/net/tcp6", std::string(32, '0')}}) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retries;
      std::uint32_t user = 0;
      const bool whole(words >> number >> local >> remote >> state >> queues >> timer >> retries >> user);
      if (whole && state == "0A" && local == address + behind) {
        return user;
      }
    }
  }
  return std::nullopt;
}

}  // namespace gradwire::watch::live

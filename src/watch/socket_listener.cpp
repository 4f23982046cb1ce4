#include "watch/socket_listener.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/closed_in_children.hpp"
#include "base/current_error.hpp"
#include "base/forked.hpp"
#include "base/own_files.hpp"
#include "base/unix_socket.hpp"
#include "gradwire/error.hpp"
#include "watch/metric.hpp"
#include "watch/textfile.hpp"
#include "watch/whole_file.hpp"

namespace gradwire::watch {
namespace {

constexpr std::chrono::seconds kRequestLimit{2};
constexpr std::size_t kMostRequest = 8192;  // bytes

std::string answer_of(std::string_view status, std::string_view type, std::string_view body) {
  std::string text = "HTTP/1.0 " + std::string(status) + "\r\nContent-Type: " + std::string(type) +
                     "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n";
  return text.append(body);
}

std::string refusal(std::string_view status, std::string_view why) {
  return answer_of(status, "text/plain; charset=utf-8", why);
}

}  // namespace

// Owns the socket. The listener and the server's thread share it, so that neither has to wait for the other's end.
class SocketListener::Server {
 public:
  Server(std::filesystem::path path, std::shared_ptr<ServedTotals> served)
      : path_(std::move(path)),
        served_(std::move(served)),
        listening_(listen_at(path_)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake_.get() < 0 || !close_in_children(listening_.get())) {
      remove();
      throw Error(ErrorCode::invalid_argument,
                  "cannot listen at " + path_.string() + ": there are too many files open");
    }
  }
  ~Server() {
    if (!home_.is_elsewhere()) {
      forget_in_children(listening_.get());
    }
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  static void start(const std::shared_ptr<Server>& server) {
    // The thread handles no signal of the job.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([server] { server->serve(); }).detach();
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      server->remove();
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  // Called in this process alone: a forked child must not remove its parent's socket.
  void end() noexcept {
    if (!home_.is_elsewhere()) {
      remove();
      served_->end();
      static_cast<void>(::eventfd_write(wake_.get(), 1));
    }
  }

 private:
  void remove() const noexcept { ::unlink(path_.c_str()); }

  void serve() noexcept {
    while (true) {
      pollfd waited[] = {{listening_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
      if (::poll(waited, 2, -1) < 0 && errno != EINTR) {
        return;
      }
      if (waited[1].revents != 0) {
        return;
      }
      const Descriptor client(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (client.get() >= 0) {
        answer(client.get());
      } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the process has no descriptor left
      }
    }
  }

  void answer(int client) noexcept {
    try {
      const Deadline deadline = std::chrono::steady_clock::now() + kRequestLimit;
      std::string request;
      while (request.find("\r\n\r\n") == std::string::npos && receive_before(client, request, kMostRequest, deadline)) {
      }
      static_cast<void>(send_before(client, answer_to(request), deadline));
    } catch (...) {  // NOLINT(bugprone-empty-catch): without memory there is no answer
    }
  }

  std::string answer_to(std::string_view request) {
    if (request.find("\r\n\r\n") == std::string_view::npos) {
      return request.size() >= kMostRequest
                 ? refusal("431 Request Header Fields Too Large", "The request is too long.\n")
                 : refusal("408 Request Timeout", "The request did not come to its end.\n");
    }
    const std::string_view line = request.substr(0, request.find("\r\n"));
    if (!line.starts_with("GET ")) {
      return refusal("405 Method Not Allowed", "Metrics can only be read.\n");
    }
    if (!line.starts_with("GET /metrics HTTP/1.")) {
      return refusal("404 Not Found", "There is /metrics, and nothing else.\n");
    }
    std::string text;
    served_->with_page([&](std::span<const Family> all) { text = to_text(all, {}); });
    return text.empty() ? refusal("503 Service Unavailable", "The job ends.\n")
                        : answer_of("200 OK", "text/plain; version=0.0.4; charset=utf-8", text);
  }

  const Home home_;
  const std::filesystem::path path_;
  const std::shared_ptr<ServedTotals> served_;
  Descriptor listening_;
  Descriptor wake_;
};

std::string socket_name(const std::string& part, int rank, const std::string& job) {
  return rank_file_name(part, rank, job, ".sock");
}

SocketListener::SocketListener(SocketOptions options, std::shared_ptr<Totals> totals)
    : options_(std::move(options)), served_(std::make_shared<ServedTotals>(std::move(totals))) {}

SocketListener::~SocketListener() {
  if (server_ != nullptr) {
    server_->end();
  }
}

void SocketListener::take(Totals& totals) {
  if (totals.reader().ended) {
    if (const auto server = std::exchange(server_, nullptr); server != nullptr) {
      server->end();
    }
    return;
  }
  const std::optional<int> rank = ServedTotals::rank_of(totals.aggregate());
  if (server_ != nullptr || given_up_ || !rank) {
    return;
  }
  const std::filesystem::path path = options_.directory / socket_name(totals.part(), *rank, totals.job());
  try {
    std::error_code error;
    make_own_folders(options_.directory, error);
    if (error) {
      throw Error(ErrorCode::invalid_argument,
                  "cannot make the directory " + options_.directory.string() + ": " + error.message());
    }
    auto server = std::make_shared<Server>(path, served_);
    Server::start(server);
    server_ = std::move(server);
  } catch (...) {
    given_up_ = true;
    options_.warn("metrics: " + std::string(current_error().what()) + " (GRADWIRE_METRICS). The job goes on without");
  }
}

}  // namespace gradwire::watch

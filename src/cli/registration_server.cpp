#include "cli/registration_server.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "gradwire/error.hpp"
#include "transport/tcp/tcp_registration.hpp"

namespace gradwire::cli {
namespace {

namespace tcp = transport::tcp;
using Letter = tcp::RegistrationLetter;
using Reply = tcp::RegistrationReply;

constexpr std::size_t kMostStrangers = 256;
constexpr std::size_t kFilesLeft = 64;                      // for the rest of this program
constexpr std::chrono::milliseconds kUntilThereIsRoom{50};  // pause before a listener without room is polled again

std::size_t connections_by_limit() {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  const std::size_t files = known ? static_cast<std::size_t>(limit.rlim_cur) : std::size_t{1024};
  return std::max(files, 2 * kFilesLeft) - kFilesLeft;
}

template <std::size_t N>
std::string text_in(const std::array<char, N>& field) {
  return {field.begin(), std::find(field.begin(), field.end(), '\0')};
}

// Compares all digits, so that the time does not show how many are right.
bool is_token(const std::array<char, tcp::kTokenDigits>& said, const std::string& token) {
  unsigned different = 0;
  for (std::size_t i = 0; i < said.size(); ++i) {
    different |= static_cast<unsigned>(said[i] ^ token[i]);
  }
  return different == 0;
}

}  // namespace

class RegistrationServer::Listener {
 public:
  explicit Listener(const Options& options) : options_(options), worlds_(options.patience) {
    address_ = tcp::RegistrationAddress::random();
    most_ = options.most_connections > 0 ? options.most_connections : connections_by_limit();
    std::string why;
    if (tcp::Socket local = tcp::listen_locally(address_.local, why); local.valid()) {
      listeners_.push_back(std::move(local));
    } else {
      address_.local.clear();
    }
    listen_by_tcp();
    wake_ = tcp::Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (listeners_.empty() || !wake_.valid()) {
      throw Error(ErrorCode::transport, listeners_.empty() ? why : tcp::system_text(errno));
    }
    start_thread();
  }

  ~Listener() {
    ending_ = true;
    wake();
    thread_.join();
    for (const tcp::Socket& listener : listeners_) {
      ::shutdown(listener.fd(), SHUT_RDWR);  // a forked child may have it open, too
    }
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] std::string variable() const {
    const MutexLock lock(mutex_);
    return address_.to_text();
  }
  [[nodiscard]] const std::string& remote_problem() const noexcept { return remote_problem_; }
  [[nodiscard]] SeenRanks seen() const {
    const MutexLock lock(mutex_);
    return worlds_.seen();
  }
  void start_anew() {
    const MutexLock lock(mutex_);
    const tcp::RegistrationAddress other = tcp::RegistrationAddress::random();
    address_.token = other.token;
    address_.proof = other.proof;
    worlds_ = RegistrationWorlds(options_.patience);
    for (const Visitor& visitor : visitors_) {
      ::shutdown(visitor.socket.fd(), SHUT_RDWR);  // the thread then sees that they have ended
    }
    wake();
  }

 private:
  // One connection, which brings one letter after another. Answers are small; bytes that do not fit at once wait for
  // room.
  struct Visitor {
    RegistrationWorlds::Visitor number = 0;
    tcp::Socket socket;
    tcp::Clock::time_point until;  // it must have sent a letter by then
    enum class State : std::uint8_t { stranger, beginning, asking, answered } state = State::stranger;
    Letter letter = {};
    std::size_t heard = 0;
    std::string unsent = {};
  };

  void listen_by_tcp() REQUIRES(mutex_) {
    try {
      for (const std::string& address : tcp::addresses_for(options_.interface, options_.on_loopback)) {
        const bool loopback = address.starts_with("127.") || address == "::1";
        if (loopback && !options_.on_loopback && options_.interface.empty()) {
          continue;  // a host without other addresses reaches no other hosts
        }
        tcp::Listener listener = tcp::listen_at(address, remote_problem_);
        if (listener.socket.valid()) {
          address_.places.push_back({.address = address, .port = listener.port});
          listeners_.push_back(std::move(listener.socket));
        }
      }
      if (!address_.places.empty()) {
        remote_problem_.clear();
      } else if (remote_problem_.empty()) {
        remote_problem_ = "this host has no address but that of its loopback";
      }
    } catch (const Error& error) {
      remote_problem_ = error.what();
    }
  }

  // Starts the thread without signals, which are for the thread that waits for the command.
  void start_thread() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { serve(); });
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw Error(ErrorCode::transport, "no thread can be started");
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void wake() const noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(::write(wake_.fd(), &one, sizeof(one)) == 0);
  }

  void serve() {
    while (!ending_) {
      wait();
      const MutexLock lock(mutex_);
      const auto now = tcp::Clock::now();
      full_ = false;
      for (const tcp::Socket& listener : listeners_) {
        let_in(listener, now);
      }
      for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
        visitor = stays(*visitor, now) ? visitor + 1 : forget(visitor);
      }
      give_answers(now);
    }
  }

  // Waits until something comes, or a time is over.
  void wait() {
    std::vector<pollfd> entries{{.fd = wake_.fd(), .events = POLLIN, .revents = 0}};
    auto until = tcp::Clock::now() + std::chrono::hours(1);
    if (full_) {
      until = tcp::Clock::now() + kUntilThereIsRoom;
    }
    for (const tcp::Socket& listener : listeners_) {
      entries.push_back({.fd = full_ ? -1 : listener.fd(), .events = POLLIN, .revents = 0});
    }
    {
      const MutexLock lock(mutex_);
      for (const Visitor& visitor : visitors_) {
        const int events = POLLIN | (visitor.unsent.empty() ? 0 : POLLOUT);
        entries.push_back({.fd = visitor.socket.fd(), .events = static_cast<short>(events), .revents = 0});
        until = visitor.state == Visitor::State::stranger ? std::min(until, visitor.until) : until;
      }
      until = std::min(until, worlds_.next(tcp::Clock::now()).value_or(until));
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - tcp::Clock::now());
    ::poll(entries.data(), entries.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000)));
    std::uint64_t count = 0;
    static_cast<void>(::read(wake_.fd(), &count, sizeof(count)) == 0);
  }

  void let_in(const tcp::Socket& listener, tcp::Clock::time_point now) REQUIRES(mutex_) {
    constexpr int kAtOnce = 64;  // then letters of accepted connections are read first
    for (int i = 0; i < kAtOnce; ++i) {
      tcp::Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.valid()) {
        const bool is_full = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
        if (is_full && make_room()) {
          continue;
        }
        full_ |= is_full;
        return;  // no visitor is left, or the one that came has gone
      }
      const auto strangers =
          static_cast<std::size_t>(std::count_if(visitors_.begin(), visitors_.end(), [](const Visitor& each) {
            return each.state == Visitor::State::stranger;
          }));
      if (strangers >= kMostStrangers) {
        drop_oldest(Visitor::State::stranger);
      } else if (visitors_.size() >= most_) {
        make_room();  // if all others wait for an answer, this one is told to come again
      }
      visitors_.push_back({.number = ++last_, .socket = std::move(socket), .until = now + options_.to_speak});
    }
  }

  bool make_room() REQUIRES(mutex_) {
    return drop_oldest(Visitor::State::stranger) || drop_oldest(Visitor::State::answered) ||
           drop_oldest(Visitor::State::beginning);
  }

  // Drops the oldest visitor in this state. It stays known that its process has begun.
  bool drop_oldest(Visitor::State state) REQUIRES(mutex_) {
    const auto oldest = std::find_if(visitors_.begin(), visitors_.end(),
                                     [&](const Visitor& visitor) { return visitor.state == state; });
    if (oldest == visitors_.end()) {
      return false;
    }
    ::shutdown(oldest->socket.fd(), SHUT_RDWR);
    visitors_.erase(oldest);
    return true;
  }

  std::deque<Visitor>::iterator forget(const std::deque<Visitor>::iterator& visitor) REQUIRES(mutex_) {
    worlds_.leave(visitor->number);
    ::shutdown(visitor->socket.fd(), SHUT_RDWR);  // a forked child may have it open, too
    return visitors_.erase(visitor);
  }

  bool stays(Visitor& visitor, tcp::Clock::time_point now) REQUIRES(mutex_) {
    if (visitor.state == Visitor::State::stranger && now >= visitor.until) {
      return false;
    }
    return send_rest(visitor) && hear(visitor, now);
  }

  // Reads from a visitor. False: the connection has ended, or is not from gradwire.
  bool hear(Visitor& visitor, tcp::Clock::time_point now) REQUIRES(mutex_) {
    for (;;) {
      const auto bytes = std::as_writable_bytes(std::span(&visitor.letter, 1)).subspan(visitor.heard);
      const ssize_t count = ::recv(visitor.socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count <= 0) {
        return count < 0 && errno == EAGAIN;
      }
      visitor.heard += static_cast<std::size_t>(count);
      if (visitor.heard >= tcp::kTokenDigits && !is_token(visitor.letter.token, address_.token)) {
        return false;
      }
      if (visitor.heard == sizeof(Letter)) {
        visitor.heard = 0;
        if (!read(visitor, now)) {
          return false;
        }
      }
    }
  }

  bool read(Visitor& visitor, tcp::Clock::time_point now) REQUIRES(mutex_) {
    const Letter& letter = visitor.letter;
    if (letter.version != tcp::kRegistrationVersion) {
      static_cast<void>(answer(visitor, Reply::Kind::version, {}));
      return false;
    }
    const RegistrationWorlds::Process process{
        .number = letter.process, .job = text_in(letter.job), .rank = letter.rank, .host = text_in(letter.host)};
    if (letter.kind == Letter::Kind::begins) {
      visitor.state = Visitor::State::beginning;
      worlds_.begin(visitor.number, process);
      return answer(visitor, Reply::Kind::welcome, {});
    }
    if (letter.kind == Letter::Kind::runs || letter.kind == Letter::Kind::ends) {
      visitor.state = Visitor::State::answered;
      letter.kind == Letter::Kind::runs ? worlds_.run(letter.process, text_in(letter.host))
                                        : worlds_.end(letter.process, letter.status);
      return answer(visitor, Reply::Kind::welcome, {});
    }
    if (letter.kind != Letter::Kind::asks) {
      return false;
    }
    visitor.state = Visitor::State::asking;
    if (visitors_.size() > most_) {
      static_cast<void>(answer(visitor, Reply::Kind::again, {}));
      return false;
    }
    return worlds_.ask(visitor.number, process, letter.world_size, now);
  }

  void give_answers(tcp::Clock::time_point now) REQUIRES(mutex_) {
    for (const RegistrationWorlds::Answer& given : worlds_.take_answers(now)) {
      const auto visitor = std::find_if(visitors_.begin(), visitors_.end(),
                                        [&](const Visitor& each) { return each.number == given.visitor; });
      if (visitor == visitors_.end()) {
        continue;
      }
      visitor->state = Visitor::State::answered;
      if (!answer(*visitor, given.missing.empty() ? Reply::Kind::all : Reply::Kind::missing, given.missing)) {
        forget(visitor);
      }
    }
  }

  bool answer(Visitor& visitor, Reply::Kind kind, const std::vector<int>& missing) REQUIRES(mutex_) {
    Reply reply{.kind = kind};
    std::copy_n(address_.proof.begin(), reply.proof.size(), reply.proof.begin());
    reply.named = static_cast<std::uint32_t>(std::min<std::size_t>(missing.size(), Reply::kMostNamed));
    const std::vector<std::int32_t> ranks(missing.begin(), missing.begin() + reply.named);
    const auto append = [&](std::span<const std::byte> bytes) {
      visitor.unsent.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    append(std::as_bytes(std::span(&reply, 1)));
    append(std::as_bytes(std::span(ranks)));
    return send_rest(visitor);
  }

  static bool send_rest(Visitor& visitor) {
    while (!visitor.unsent.empty()) {
      const ssize_t count =
          ::send(visitor.socket.fd(), visitor.unsent.data(), visitor.unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && errno != EINTR) {
        return errno == EAGAIN;
      }
      visitor.unsent.erase(0, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    }
    return true;
  }

  const Options options_;
  std::size_t most_ = 0;  // most connections
  std::vector<tcp::Socket> listeners_;
  std::string remote_problem_;
  tcp::Socket wake_;
  std::atomic<bool> ending_{false};

  mutable Mutex mutex_;
  tcp::RegistrationAddress address_ GUARDED_BY(mutex_);
  RegistrationWorlds worlds_ GUARDED_BY(mutex_);
  std::deque<Visitor> visitors_ GUARDED_BY(mutex_);  // oldest first
  RegistrationWorlds::Visitor last_ GUARDED_BY(mutex_) = 0;
  bool full_ = false;  // only the thread uses it
  std::thread thread_;
};

RegistrationServer::RegistrationServer(const Options& options) : listener_(std::make_unique<Listener>(options)) {}
RegistrationServer::~RegistrationServer() = default;

std::string RegistrationServer::variable() const { return listener_->variable(); }
const std::string& RegistrationServer::remote_problem() const noexcept { return listener_->remote_problem(); }
void RegistrationServer::start_anew() { listener_->start_anew(); }
SeenRanks RegistrationServer::seen() const { return listener_->seen(); }

}  // namespace gradwire::cli

#include "drop_in/registration.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "base/environment.hpp"
#include "base/units.hpp"
#include "drop_in/mpi_job.hpp"

namespace gradwire::drop_in {
namespace {

namespace tcp = transport::tcp;
using tcp::Clock;
using Kind = tcp::RegistrationLetter::Kind;
using Said = tcp::RegistrationReply::Kind;

constexpr std::chrono::milliseconds kUntilRetry{20};  // before what may work soon is tried again
constexpr std::chrono::milliseconds kAskAgain{100};

template <typename Letter>
std::span<std::byte> letter_bytes(Letter& letter) {
  return std::as_writable_bytes(std::span(&letter, 1));
}

template <std::size_t N>
void put_text(std::array<char, N>& field, std::string_view text) {
  std::copy_n(text.begin(), std::min(text.size(), N - 1), field.begin());
}

// FNV-1a: what does not fit into the field still tells jobs apart.
std::string job_field(const std::string& job) {
  constexpr std::size_t kMost = 160;
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : job) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return job.size() <= kMost ? job : job.substr(0, kMost) + " " + std::to_string(hash);
}

std::string place_name(const tcp::Card::Place& place) { return place.address + " port " + std::to_string(place.port); }

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

// One connection that is being made.
struct Try {
  tcp::Socket socket;
  std::string name;
  bool connected = false;
  tcp::RegistrationReply reply = {};
  std::size_t heard = 0;
};

/// Makes connections at once, and keeps the one on which the server answers first.
class Reaching {
 public:
  Reaching(const tcp::RegistrationAddress& server, const tcp::RegistrationLetter& letter, Clock::time_point deadline)
      : server_(server), letter_(letter), deadline_(deadline) {}

  /// Not valid: `why` says what was tried. Other hosts' addresses are used only where there is no server on this one.
  tcp::Socket run(std::string& why) {
    if (!server_.local.empty() && begin_locally()) {
      if (tcp::Socket socket = first(); socket.valid()) {
        return socket;
      }
    }
    for (const tcp::Card::Place& place : server_.places) {
      int code = 0;
      tcp::Socket socket = tcp::begin_connecting(place, code);
      if (socket.valid()) {
        tries_.push_back({.socket = std::move(socket), .name = place_name(place)});
      } else {
        note(place_name(place), tcp::system_text(code));
      }
    }
    tcp::Socket socket = first();
    why = tried_.empty() ? "it has no address for other hosts" : tried_;
    return socket;
  }
  /// Whether the server closed one that was made, as where strangers come in crowds: then another try may work.
  [[nodiscard]] bool was_closed() const noexcept { return was_closed_; }

 private:
  // Whether somebody listens under that name. Its queue may be full for a moment.
  bool begin_locally() {
    int code = EAGAIN;
    while (code == EAGAIN) {
      tcp::Socket socket = tcp::begin_connecting_locally(server_.local, code);
      if (socket.valid()) {
        tries_.push_back({.socket = std::move(socket), .name = "the socket of this host"});
        return true;
      }
      if (Clock::now() >= deadline_) {
        note("the socket of this host", "its queue stayed full");
        return false;
      }
      if (code == EAGAIN) {
        std::this_thread::sleep_for(kUntilRetry);
      }
    }
    return false;
  }

  tcp::Socket first() {
    while (!tries_.empty()) {
      std::vector<pollfd> entries;
      for (const Try& each : tries_) {
        entries.push_back(
            {.fd = each.socket.fd(), .events = static_cast<short>(each.connected ? POLLIN : POLLOUT), .revents = 0});
      }
      const int ready = ::poll(entries.data(), entries.size(), milliseconds_until(deadline_));
      if (ready == 0 && Clock::now() >= deadline_) {
        for (const Try& each : tries_) {
          note(each.name, each.connected ? "no answer" : tcp::system_text(ETIMEDOUT));
        }
        tries_.clear();
        return {};
      }
      for (std::size_t i = entries.size(); i-- > 0;) {
        if (entries[i].revents == 0) {
          continue;
        }
        if (const std::string wrong = move(tries_[i]); !wrong.empty()) {
          note(tries_[i].name, wrong);
          tries_.erase(tries_.begin() + static_cast<std::ptrdiff_t>(i));
        } else if (tries_[i].heard == sizeof(tcp::RegistrationReply)) {
          return std::move(tries_[i].socket);
        }
      }
    }
    return {};
  }

  // What is wrong with it, or nothing.
  std::string move(Try& one) {
    if (!one.connected) {
      int code = 0;
      socklen_t length = sizeof(code);
      if (::getsockopt(one.socket.fd(), SOL_SOCKET, SO_ERROR, &code, &length) != 0 || code != 0) {
        return tcp::system_text(code != 0 ? code : errno);
      }
      one.connected = true;
      tcp::RegistrationLetter letter = letter_;
      // It is small and the connection new, so that there is always room.
      return tcp::write_until(one.socket, letter_bytes(letter), Clock::now()) ? "" : tcp::system_text(errno);
    }
    const auto rest = letter_bytes(one.reply).subspan(one.heard);
    const ssize_t count = ::recv(one.socket.fd(), rest.data(), rest.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      return "";
    }
    if (count <= 0) {
      was_closed_ = true;
      return "the connection was closed";
    }
    one.heard += static_cast<std::size_t>(count);
    if (one.heard < sizeof(tcp::RegistrationReply)) {
      return "";
    }
    const bool known =
        std::equal(one.reply.proof.begin(), one.reply.proof.end(), server_.proof.begin(), server_.proof.end());
    if (!known) {
      return "somebody else answers";
    }
    return one.reply.kind == Said::welcome ? "" : "another version of gradwire answers";
  }

  void note(const std::string& name, const std::string& what) {
    tried_ += (tried_.empty() ? "" : ", ") + name + ": " + what;
  }

  const tcp::RegistrationAddress& server_;
  const tcp::RegistrationLetter& letter_;
  Clock::time_point deadline_;
  std::vector<Try> tries_;
  std::string tried_;
  bool was_closed_ = false;
};

}  // namespace

RegistrationSettings RegistrationSettings::of_environment() {
  RegistrationSettings settings;
  settings.server = environment("GRADWIRE_REGISTER");
  if (settings.server) {
    settings.job = mpi_job();
    settings.launched_rank = drop_in::launched_rank();
  }
  return settings;
}

// False where there is no server, or what is said of it cannot be read.
bool Registration::read_settings() {
  if (!settings_) {
    settings_ = RegistrationSettings::of_environment();
  }
  if (settings_->server && !server_) {
    server_ = tcp::RegistrationAddress::from_text(*settings_->server);
    process_ = tcp::random_number();
    if (!server_) {
      why_ = "GRADWIRE_REGISTER is not what gradwire run sets";
    }
  }
  return server_.has_value();
}

tcp::RegistrationLetter Registration::letter(Kind kind) const {
  tcp::RegistrationLetter letter;
  std::copy_n(server_->token.begin(), letter.token.size(), letter.token.begin());
  letter.kind = kind;
  letter.process = process_;
  letter.rank = settings_->launched_rank;
  put_text(letter.job, job_field(settings_->job));
  put_text(letter.host, tcp::host_name());
  return letter;
}

bool Registration::reach() {
  const tcp::RegistrationLetter begins = letter(Kind::begins);
  const auto deadline = Clock::now() + settings_->to_connect;
  for (;;) {
    Reaching reaching(*server_, begins, deadline);
    socket_ = reaching.run(why_);
    if (socket_.valid() || !reaching.was_closed() || Clock::now() + kAskAgain >= deadline) {
      return socket_.valid();
    }
    std::this_thread::sleep_for(kAskAgain);
  }
}

void Registration::begin() noexcept {
  try {
    if (read_settings()) {
      begun_ = true;
      static_cast<void>(reach());
    }
  } catch (const std::exception& error) {
    begun_ = true;
    why_ = error.what();
  }
}

// Nothing: the connection ended, or there is no answer yet.
std::optional<RegistrationAnswer> Registration::hear(Clock::time_point deadline) {
  tcp::RegistrationReply reply;
  if (!tcp::read_until(socket_, letter_bytes(reply), deadline) ||
      !std::equal(reply.proof.begin(), reply.proof.end(), server_->proof.begin(), server_->proof.end()) ||
      reply.named > tcp::RegistrationReply::kMostNamed) {
    return std::nullopt;
  }
  std::vector<std::int32_t> ranks(reply.named);
  if (!tcp::read_until(socket_, std::as_writable_bytes(std::span(ranks)), deadline)) {
    return std::nullopt;
  }
  if (reply.kind == Said::all) {
    return RegistrationAnswer{.kind = RegistrationAnswer::Kind::all, .missing = {}, .why = {}};
  }
  if (reply.kind == Said::missing) {
    return RegistrationAnswer{
        .kind = RegistrationAnswer::Kind::missing, .missing = std::vector<int>(ranks.begin(), ranks.end()), .why = {}};
  }
  return std::nullopt;
}

RegistrationAnswer Registration::question(int rank, int world_size) {
  const RegistrationAnswer unreachable{.kind = RegistrationAnswer::Kind::unreachable, .missing = {}, .why = {}};
  if (!read_settings()) {
    return settings_->server ? unreachable : RegistrationAnswer{};
  }
  if (settings_->job.empty() && world_size == 1) {
    return {.kind = RegistrationAnswer::Kind::all, .missing = {}, .why = {}};
  }
  if (settings_->job.empty()) {
    why_ =
        "nothing in the environment says which MPI job this process belongs to (no PMIX_NAMESPACE, no proxy of "
        "hydra, no SLURM_STEP_ID)";
    return unreachable;
  }
  if (begun_ && !socket_.valid()) {
    return unreachable;
  }
  tcp::RegistrationLetter asks = letter(Kind::asks);
  asks.rank = rank;
  asks.world_size = world_size;
  const auto deadline = Clock::now() + settings_->to_be_answered;
  do {
    if (!socket_.valid() && !reach()) {
      return unreachable;
    }
    if (tcp::write_until(socket_, letter_bytes(asks), deadline)) {
      if (auto answer = hear(deadline)) {
        return *answer;
      }
    }
    socket_ = tcp::Socket();
    std::this_thread::sleep_for(kAskAgain);
  } while (Clock::now() < deadline);
  why_ = "it did not answer within " + format_duration(settings_->to_be_answered);
  return unreachable;
}

RegistrationAnswer Registration::ask(int rank, int world_size) noexcept {
  RegistrationAnswer answer;
  try {
    answer = question(rank, world_size);
  } catch (const std::exception& error) {
    answer.kind = RegistrationAnswer::Kind::unreachable;
    why_ = error.what();
  }
  socket_ = tcp::Socket();
  begun_ = false;
  if (answer.kind == RegistrationAnswer::Kind::unreachable) {
    answer.why = std::move(why_);
  }
  return answer;
}

}  // namespace gradwire::drop_in

#include "transport/tcp/tcp_door.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <utility>

#include "base/log.hpp"
#include "gradwire/error.hpp"
#include "transport/tcp/tcp_acceptor.hpp"

namespace gradwire::transport::tcp {
namespace {

constexpr std::chrono::seconds kLook{5};  // for those of which the second connection never came
constexpr std::chrono::minutes kBetweenWarnings{1};
constexpr std::size_t kMostHalves = 64;  // they know the secret

}  // namespace

Door::Door(std::vector<Listener> listeners, const Greeting& own, Host host)
    : own_(own), host_(std::move(host)), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!wake_.valid()) {
    throw Error(ErrorCode::transport, "tcp: eventfd: " + system_text(errno));
  }
  thread_ = std::thread([this, taken = std::move(listeners)]() mutable { run(std::move(taken)); });
}

Door::~Door() {
  close();
  thread_.join();
}

void Door::close() noexcept {
  closed_ = true;
  const std::uint64_t one = 1;
  static_cast<void>(!write(wake_.fd(), &one, sizeof(one)));
}

void Door::run(std::vector<Listener> listeners) noexcept {
  Acceptor acceptor(std::move(listeners), own_, {.first = kFirstToken, .end = kEndOfTokens, .at_once = kMostHalves});
  std::map<int, Half> halves;  // by token; closed with the door
  Clock::time_point warns_at = Clock::now();
  while (!closed_) {
    try {
      auto accepted = acceptor.take(Clock::now() + kLook, wake_);
      const auto now = Clock::now();
      std::erase_if(halves, [now](const auto& half) { return half.second.until < now; });
      if (!accepted || (halves.size() >= kMostHalves && !halves.contains(accepted->rank))) {
        continue;
      }
      Half& half =
          halves.try_emplace(accepted->rank, Half{.prompt = {}, .bulk = {}, .until = now + kTurn}).first->second;
      set_up(accepted->socket, accepted->control ? Carries::control : Carries::messages);
      (accepted->control ? half.prompt : half.bulk) = std::move(accepted->socket);
      if (half.prompt.valid() && half.bulk.valid()) {
        Half joiner = std::move(half);
        halves.erase(accepted->rank);
        serve(std::move(joiner));
      }
    } catch (const std::exception& error) {  // as where no descriptor is left
      if (const auto now = Clock::now(); now >= warns_at) {
        warns_at = now + kBetweenWarnings;
        log(LogLevel::warning, std::string("nobody can join at this moment: ") + error.what());
      }
      usleep(100'000);
    }
  }
}

// Others wait meanwhile.
void Door::serve(Half joiner) const {
  const auto until = Clock::now() + kTurn;
  if (!write_message(joiner.prompt, host_.turn().to_text(), until)) {
    return;
  }
  const auto said = read_message(joiner.prompt, until, wake_);
  auto who = said ? Acquaintance::from_text(*said) : std::nullopt;
  if (who && who->state == Acquaintance::State::alive && !who->card.places.empty()) {
    host_.admit({.who = std::move(*who), .prompt = std::move(joiner.prompt), .bulk = std::move(joiner.bulk)});
  }
}

}  // namespace gradwire::transport::tcp

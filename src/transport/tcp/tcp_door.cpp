#include "transport/tcp/tcp_door.hpp"

#include <utility>

#include "base/log.hpp"
#include "memory/background_threads.hpp"

namespace gradwire::transport::tcp {
namespace {

constexpr std::size_t kMostHalves = 64;  // only joiners that know the secret can fill this

}  // namespace

Door::Door(Host host) : host_(std::move(host)), thread_([this] { run(); }) {}

Door::~Door() {
  close();
  thread_.join();
}

void Door::close() noexcept {
  const MutexLock lock(mutex_);
  closed_ = true;
  halves_.clear();  // so that joiners do not wait for a turn that never comes
  waiting_.clear();
  wake_.set();
  changed_.notify_all();
}

void Door::knock(Accepted accepted) {
  const auto now = Clock::now();
  const bool prompt = accepted.purpose == Purpose::control;
  set_up(accepted.socket, Carries::lane);
  const MutexLock lock(mutex_);
  std::erase_if(halves_, [now](const auto& half) { return half.second.until < now; });
  if (closed_ || accepted.purpose == Purpose::agent ||
      (halves_.size() + waiting_.size() >= kMostHalves && !halves_.contains(accepted.rank))) {
    return;
  }
  Half& half = halves_.try_emplace(accepted.rank, Half{.prompt = {}, .bulk = {}, .until = now + kTurn}).first->second;
  (prompt ? half.prompt : half.bulk) = std::move(accepted.socket);
  if (half.prompt.valid() && half.bulk.valid()) {
    waiting_.push_back(std::move(half));
    halves_.erase(accepted.rank);
    changed_.notify_all();
  }
}

void Door::run() noexcept {
  const memory::BackgroundThread background;
  const MutexLock lock(mutex_);
  for (;;) {
    changed_.wait(mutex_, [this]() REQUIRES(mutex_) { return closed_ || !waiting_.empty(); });
    if (closed_) {
      return;
    }
    Half joiner = std::move(waiting_.front());
    waiting_.pop_front();
    const MutexUnlock meanwhile(mutex_);
    try {
      serve(std::move(joiner));
    } catch (const std::exception& error) {  // lack of memory
      log(LogLevel::warning, std::string("a process could not join: ") + error.what());
    }
  }
}

// Serves one joiner; other joiners wait meanwhile.
void Door::serve(Half joiner) const {
  const auto until = Clock::now() + kTurn;
  if (!write_message(joiner.prompt, host_.turn().to_text(), until)) {
    return;
  }
  const auto said = read_message(joiner.prompt, until, wake_.readable());
  auto who = said ? Acquaintance::from_text(*said) : std::nullopt;
  if (who && who->state == Acquaintance::State::alive && !who->card.places.empty()) {
    host_.admit({.who = std::move(*who), .prompt = std::move(joiner.prompt), .bulk = std::move(joiner.bulk)});
  }
}

}  // namespace gradwire::transport::tcp

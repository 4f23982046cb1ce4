#include "transport/foreground.hpp"

namespace gradwire::transport {
namespace {

using Clock = Foreground::Clock;

std::atomic<int> g_senders{0};
std::atomic<Clock::rep> g_moved{0};  // when a sender last moved bytes

}  // namespace

void Foreground::note(bool sending, bool moved, Clock::time_point now) noexcept {
  if (sending && (moved || !sending_)) {
    g_moved = now.time_since_epoch().count();
  }
  if (sending_.exchange(sending) != sending) {
    g_senders += sending ? 1 : -1;
  }
}

bool foreground_sends(Clock::time_point now) noexcept {
  return g_senders > 0 && now - Clock::time_point(Clock::duration(g_moved)) < kHoldsBack;
}

}  // namespace gradwire::transport

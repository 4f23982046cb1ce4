#include "exchange/window.hpp"

#include <algorithm>

namespace gradwire::exchange {
namespace {

constexpr double kSpare = 1.25;  // times rate x delay, so that fluctuations do not leave the link empty
constexpr double kBeside = 2;    // lanes beside those on a known link: being encoded, sent and decoded
constexpr double kSearch = 2;    // growth while the link took all that it was given
constexpr double kTaken = 0.8;   // if less than this share of a window was on the link, the rest has queued
constexpr double kNear = 1.02;   // the least lanes fill the link if rate x delay is at most this times their bytes
constexpr std::uint32_t kPeriods = 8;  // number of periods after which older measurements are dropped

}  // namespace

std::uint64_t window_bytes(double bytes_per_second, double latency_seconds) {
  constexpr double kMost = 0x1p62;
  return static_cast<std::uint64_t>(std::clamp(kSpare * bytes_per_second * latency_seconds, 0.0, kMost));
}

std::uint64_t Window::bytes() const noexcept { return static_cast<std::uint64_t>(std::max(known_, grown_)); }

bool Window::admits(const LaneLoad& load) {
  refused_ = Refused::no;
  if (lanes_ < limits_.least_lanes) {
    return true;
  }
  if (lanes_ >= limits_.most_lanes || load.travels == 0 || memory_ + load.memory + load.rooms > limits_.memory_bytes) {
    refused_ = Refused::by_memory;
  } else if (open_ + load.a_hop() > std::max(known_ + (known_ > 0 ? kBeside * load.a_hop() : 0), grown_)) {
    refused_ = Refused::by_link;
  }
  counts_ = counts_ || refused_ != Refused::no;
  return refused_ == Refused::no;
}

Window::Opened Window::open(const LaneLoad& load, Time now) {
  ++lanes_;
  open_ += load.a_hop();
  memory_ += load.memory;
  return {now, delivered_, open_};
}

void Window::close(const LaneLoad& load, const Opened& opened, Time now) {
  delivered_ += static_cast<double>(load.travels);
  if (load.hops > 0) {
    learn(load, opened, now);
  }
  memory_ -= load.memory;
  open_ -= load.a_hop();
  if (--lanes_ == 0) {
    open_ = 0;  // so that rounding errors do not add up
    end_period();
  }
}

// Measures the link as BBR does (Cardwell et al., 2016): the rate is the bytes delivered in a lane's life over that
// time, and the delay is the shortest life. Lanes that queue behind each other live longer, so the product stays the
// same.
void Window::learn(const LaneLoad& load, const Opened& opened, Time now) {
  const double life = std::max(std::chrono::duration<double>(now - opened.at).count(), 1e-9);
  Seen& seen = seen_[0];
  seen.hop_seconds = std::min(seen.hop_seconds, life / load.hops);
  const double product = (delivered_ - opened.delivered) / life * hop_seconds();
  seen.product = std::max(seen.product, product);
  const double least = limits_.least_lanes * load.a_hop();
  if (opened.open > std::max(grown_ * kTaken, least) && product < opened.open * kTaken) {
    searching_ = false;
  }
  const bool near = this->product() <= kNear * least;
  const double wanted = searching_ ? kSearch * this->product() : near ? 0 : kSpare * this->product() + load.a_hop();
  if (wanted < grown_ || starved_) {
    grown_ = wanted;
    starved_ = false;
  }
}

double Window::hop_seconds() const noexcept { return std::min(seen_[0].hop_seconds, seen_[1].hop_seconds); }

double Window::product() const noexcept { return std::max(seen_[0].product, seen_[1].product); }

// A period in which the window held nothing back shows nothing about the link.
void Window::end_period() noexcept {
  if (counts_ && ++periods_ >= kPeriods) {
    seen_ = {Seen{}, seen_[0]};
    periods_ = 0;
    searching_ = true;  // a link that was near may be far by now
  }
  counts_ = false;
  starved_ = false;
}

}  // namespace gradwire::exchange

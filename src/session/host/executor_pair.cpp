#include "session/host/executor_pair.hpp"

#include <algorithm>

#include "exchange/model/sizes.hpp"
#include "policy/sync.hpp"

namespace gradwire::session {
namespace {

constexpr int kLanesBehindOthers = 2;  // in the background, at least, if other buckets share the link

}  // namespace

ExecutorPair::ExecutorPair(Transport& transport, const SessionOptions& options, const RunnerInfo& info,
                           std::uint32_t epoch)
    : steps_(transport, {.timeout = options.timeout,
                         .checksum = info.checksum,
                         .crowded = info.crowded,
                         .source = info.source,
                         .epoch = static_cast<std::uint8_t>(epoch)}),
      background_(transport, {.timeout = options.timeout,
                              .checksum = info.checksum,
                              .channel = 1,
                              .crowded = info.crowded,
                              .source = info.source,
                              .epoch = static_cast<std::uint8_t>(epoch)}) {}

void ExecutorPair::set_plan(const plan::Plan& plan) {
  steps_.set_tiers(plan.tiers);
  background_.set_tiers(plan.tiers);
  const bool behind_others = std::any_of(plan.buckets.begin(), plan.buckets.end(),
                                         [](const plan::Bucket& bucket) { return policy::is_step(bucket.sync); });
  steps_.set_window({.memory_bytes = plan.in_flight_bytes});
  background_.set_window({.least_lanes = behind_others ? kLanesBehindOthers : exchange::kLeastLanes,
                          .memory_bytes = plan.in_flight_bytes});
}

void ExecutorPair::know_link(const exchange::Cluster& cluster) {
  const std::uint64_t bytes = exchange::window_of(cluster);
  steps_.set_known_window(bytes);
  background_.set_known_window(bytes);
}

void ExecutorPair::fail(const Error& error) noexcept {
  foreground_.note(false, false);
  steps_.fail(error);
  background_.fail(error);
}

bool ExecutorPair::advance_steps(std::chrono::microseconds wait) {
  const bool moved = steps_.advance(wait);
  foreground_.note(steps_.sending(), moved);
  return moved;
}

// Messages that are on a link cannot be called back, so the background has no more lanes than its link takes, and posts
// none while the foreground has messages to send: they would share the link. It does not wait for ever: a peer may take
// the foreground's messages only once it has a message that it waits for in the background.
void ExecutorPair::advance(std::chrono::microseconds wait) {
  const auto now = std::chrono::steady_clock::now();
  if (steps_.idle()) {
    foreground_.note(false, false);
  }
  if (background_.idle()) {
    moved_ = now;
    if (!steps_.idle()) {
      advance_steps(wait);
    }
    return;
  }
  if (!steps_.idle() && advance_steps(std::chrono::microseconds(0))) {
    moved_ = now;
    return;
  }
  if (!steps_.sending()) {
    moved_ = now;
  } else if (now - moved_ < transport::kHoldsBack) {
    if (advance_steps(wait)) {
      moved_ = now;
    }
    return;
  }
  background_.advance(wait);
}

}  // namespace gradwire::session

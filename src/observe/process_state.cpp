#include "observe/process_state.hpp"

#include <pthread.h>

#include "base/process_number.hpp"
#include "observe/record.hpp"

namespace gradwire::observe {
namespace detail {
namespace {

std::atomic<ProcessState*> g_process{nullptr};
const ProcessState* g_parents = nullptr;  // the parent's object after a fork, kept so that leak checkers find it
std::atomic<std::uint32_t> g_sources{0};  // number of sources ever added, also in parents, whose numbers stay used

constexpr std::uint32_t kLastSource = 0xFFFF;

void in_child() noexcept {
  g_clock.store(ClockKind::none, std::memory_order_relaxed);
  if (const ProcessState* parents = g_process.exchange(nullptr, std::memory_order_relaxed)) {
    g_parents = parents;
  }
  forget_ring_after_fork();
}

}  // namespace

ProcessState& process() {
  ProcessState* there = g_process.load(std::memory_order_acquire);
  if (there == nullptr) {
    static std::once_flag once;
    std::call_once(once, [] { ::pthread_atfork(nullptr, nullptr, &in_child); });
    auto* made = new ProcessState;  // NOLINT(cppcoreguidelines-owning-memory): never destroyed
    made->parents = g_parents;
    if (g_process.compare_exchange_strong(there, made, std::memory_order_acq_rel)) {
      return *made;
    }
    delete made;  // NOLINT(cppcoreguidelines-owning-memory): no other thread has seen it
  }
  return *there;
}

ThreadRings& rings() { return process().rings; }

}  // namespace detail

namespace {

// Uses the process's number in its job (base/process_number.hpp), if it has one, in place of the rank, which may
// change.
Source numbered(Source source) noexcept {
  if (const auto number = process_number()) {
    source.rank = static_cast<int>(*number);
    // A process that waits to become a rank has a world of its own until then, to which the other ranks do not belong.
    source.world_size = source.shares_process ? 1 : source.world_size;
    source.shares_process = false;
  }
  return source;
}

}  // namespace

SourceId add_source(const Source& source) {
  const Source with_number = numbered(source);
  detail::ProcessState& self = detail::process();
  const MutexLock lock(self.sources_mutex);
  if (detail::g_sources.load(std::memory_order_relaxed) == detail::kLastSource) {
    return static_cast<SourceId>(detail::kLastSource);
  }
  const auto id = static_cast<SourceId>(detail::g_sources.fetch_add(1, std::memory_order_relaxed) + 1);
  if (self.sources.empty()) {
    self.first_source = id;
  }
  self.sources.push_back(with_number);
  return id;
}

std::optional<Source> source_of(SourceId id) {
  detail::ProcessState& self = detail::process();
  const MutexLock lock(self.sources_mutex);
  const std::size_t place = static_cast<std::size_t>(id) - self.first_source;
  if (id < self.first_source || place >= self.sources.size()) {
    return std::nullopt;
  }
  return self.sources[place];
}

SourceId first_source() {
  detail::ProcessState& self = detail::process();
  const MutexLock lock(self.sources_mutex);
  return self.first_source;
}

void publish(Snapshot snapshot) {
  if (!on()) {
    return;
  }
  detail::ProcessState& self = detail::process();
  const MutexLock lock(self.sources_mutex);
  for (Snapshot& waiting : self.snapshots) {
    if (waiting.source == snapshot.source) {
      waiting = std::move(snapshot);
      return;
    }
  }
  self.snapshots.push_back(std::move(snapshot));
}

}  // namespace gradwire::observe

// Common to all transports: checks of posted operations, counters, and the reason of an abort.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>

#include "base/mutex.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::transport {

/// Throws Error(invalid_argument) unless the operation may be posted, then fills it in as pending.
void begin_send(Operation& operation, const Transport& transport, int peer, Tag tag, std::span<const std::byte> data);
void begin_receive(Operation& operation, const Transport& transport, int peer, Tag tag, std::span<std::byte> data,
                   bool at_most = false);
/// The same, and Error(unsupported) for a dtype that capabilities() lacks.
void begin_all_reduce(Operation& operation, const Transport& transport, View data);

/// Whether a receive may take a message of `bytes`. If so, sets its `bytes`.
[[nodiscard]] inline bool takes(Operation& receive, std::uint64_t bytes) noexcept {
  const bool fits = receive.at_most ? bytes <= receive.bytes : bytes == receive.bytes;
  receive.bytes = fits ? bytes : receive.bytes;
  return fits;
}

/// The text of Error(mismatch) for a receive that matched a message of another size. `size` is that size, such as "8".
[[nodiscard]] std::string describe_mismatch(const Operation& receive, const std::string& size);

/// The bytes that a perfect ring sends for an all-reduce of `bytes`: 2 (P-1)/P of them.
[[nodiscard]] std::uint64_t ring_bytes(std::uint64_t bytes, int world_size) noexcept;

/// Cuts a wait to an hour, so that no clock arithmetic overflows.
[[nodiscard]] inline std::chrono::microseconds bounded(std::chrono::microseconds wait) noexcept {
  return std::clamp<std::chrono::microseconds>(wait, std::chrono::microseconds(0), std::chrono::hours(1));
}

/// TransportCounters that one thread writes and any thread reads.
class Counters {
 public:
  /// Counts a finished operation and sets its bytes_counted.
  void count(Operation& operation, int world_size) noexcept;
  [[nodiscard]] TransportCounters read() const noexcept;

 private:
  std::atomic<std::uint64_t> bytes_sent_ = 0;
  std::atomic<std::uint64_t> bytes_received_ = 0;
  std::atomic<std::uint64_t> messages_sent_ = 0;
  std::atomic<std::uint64_t> messages_received_ = 0;
  std::atomic<std::uint64_t> native_all_reduces_ = 0;
};

/// The rank that gave up first, and why.
struct AbortReason {
  int origin;
  Error error;  // its cause is known on the origin alone: to all other ranks it is the world, and messages leave it out

  /// The original error on the rank that gave up; on other ranks Error(aborted), which names that rank.
  [[nodiscard]] Error as_seen_by(int rank) const;
};

/// Holds the first reason to give up that this rank has or heard of. Any thread may use it.
class AbortNote {
 public:
  /// Sets the reason; false if there was one before.
  bool set(AbortReason reason) noexcept;
  [[nodiscard]] bool raised() const noexcept { return raised_; }
  /// The reason; to be called only after raised().
  [[nodiscard]] AbortReason reason() const;

 private:
  std::atomic<bool> raised_ = false;
  mutable Mutex mutex_;
  std::optional<AbortReason> reason_ GUARDED_BY(mutex_);
};

}  // namespace gradwire::transport

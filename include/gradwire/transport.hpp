// The interface that moves bytes between ranks. Nonblocking: post operations, call progress(), look at their state.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/dtype.hpp"
#include "gradwire/error.hpp"
#include "gradwire/link.hpp"

namespace gradwire {

/// Message tag. Two messages of one sender with equal tags are received in the order in which they were sent.
/// Values below 2^28 belong to collectives; those above are the transport's own.
using Tag = std::uint32_t;
inline constexpr Tag kTagLimit = 1U << 28;

/// One nonblocking operation. The caller who posts it owns it and must keep it and its buffer in place until it is done
/// (or was cancelled). A transport writes state, bytes_counted and handle.
struct Operation {
  enum class Kind : std::uint8_t { send, receive, all_reduce };
  enum class State : std::uint8_t { idle, pending, done };

  Kind kind = Kind::send;
  State state = State::idle;
  bool at_most = false;  // of a receive: posted by post_receive_at_most()
  int peer = -1;
  Tag tag = 0;
  std::byte* data = nullptr;  // a send only reads it
  // A receive completes only with exactly this number. A receive of at most so many sets it to the message's.
  std::uint64_t bytes = 0;
  std::uint64_t bytes_counted = 0;  // what the transport counted as sent for this operation
  void* handle = nullptr;           // the transport's own state

  [[nodiscard]] bool done() const noexcept { return state == State::done; }
  [[nodiscard]] bool pending() const noexcept { return state == State::pending; }
};

/// Bytes and messages since the transport was made. For a native all-reduce, bytes_sent counts what a perfect ring
/// sends: 2 (P-1)/P of the buffer.
struct TransportCounters {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t native_all_reduces = 0;
};

struct TransportCapabilities {
  bool native_all_reduce_f32 = false;  // sums in the library's own order and accumulation
  bool native_all_reduce_f64 = false;
  bool all_reduce_in_call = false;  // whether all_reduce() works, for the same dtypes
  bool checksum_by_default = true;  // whether frames carry a CRC here unless the user says otherwise
  bool any_thread = true;           // false: post and progress only on the thread that made the transport
  bool device_memory = false;       // messages may lie in a GPU's memory (CUDA-aware MPI)
  bool receives_at_most = false;    // whether post_receive_at_most() works
  bool encrypted = false;           // others than its ranks can neither read nor change messages
  int most_lanes = 1024;            // chunks of collectives that may be under way at once, each with tags of its own
  std::string emulation;            // the emulated link, such as "emulated 1Gbit/s, latency 50us", or empty
};

/// A rank's answer to ask().
struct PeerState {
  bool answers = false;             // it answered in time: it lives, and is inside gradwire
  std::vector<int> waits_for = {};  // ranks whose messages it awaits, ascending
};

/// One rank's end of a group of `world_size` ranks. Post, progress and cancel are called by one thread at a time;
/// abort may be called by any thread at any time. After abort, by any rank, every post and progress on every rank
/// throws: on the origin the very Error that abort() was given, on all other ranks Error(aborted) with the origin's
/// rank and message, whose cause is ErrorCause::world. So is that of an error by which a transport tells that a peer
/// has ended, or that the way to it broke: a session over Processes makes the step again in the next world, and leaves
/// after any other error.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  /// "inproc", "mpi", "throttled(mpi)", ...
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int world_size() const noexcept = 0;
  [[nodiscard]] virtual TransportCapabilities capabilities() const = 0;
  /// The node of each rank as a number: ranks with equal numbers reach each other without the network. Empty: all share
  /// one node, as far as is known. Must be the same on every rank.
  [[nodiscard]] virtual std::vector<std::uint32_t> nodes() const { return {}; }

  /// Starts to send `data` to `peer` (never this rank). Any byte count is allowed, above 2^31 too.
  virtual void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) = 0;
  /// Starts to receive exactly `data.size()` bytes from `peer`. A message of another size is Error(mismatch), thrown by
  /// progress() with the peer, the tag and both sizes.
  virtual void post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) = 0;
  /// Starts to receive a message of at most `data.size()` bytes from `peer` into host memory. Once it is done,
  /// operation.bytes is the size of the message, and the bytes of `data` behind that are as they were or undefined. A
  /// longer message is an error as for post_receive(). It takes messages of any send, and the sender does not know.
  /// Error(unsupported) unless capabilities() says receives_at_most.
  virtual void post_receive_at_most(Operation& operation, int peer, Tag tag, std::span<std::byte> data);
  /// Starts an in-place native sum over all ranks; every rank starts them in the same order. Error(unsupported) where
  /// capabilities() has no such dtype.
  virtual void post_all_reduce(Operation& operation, View data) = 0;

  /// Makes the same sum by the library's blocking call, on this thread; libraries have faster algorithms for it than
  /// for their nonblocking call. It returns only when every rank has called it, and no timeout ends it: call it only
  /// where all ranks are known to call it at once. Error(unsupported) unless capabilities() says all_reduce_in_call.
  virtual void all_reduce(View data);

  /// Drives all operations and marks finished ones done. Waits up to `wait` for at least one operation to finish;
  /// returns at once when one has, or when nothing is pending. Returns whether any finished. Throws on failure.
  virtual bool progress(std::chrono::microseconds wait) = 0;

  /// Gives up a pending operation. True: the transport never touches its buffer again. False: the transport may still
  /// read or write the buffer at any time, so its owner must leak it.
  virtual bool cancel(Operation& operation) noexcept = 0;

  /// Tells every rank that this one gives up, and why. Wakes every waiter. The first abort wins.
  virtual void abort(const Error& error) noexcept = 0;
  [[deprecated("give abort() the Error")]] void abort(ErrorCode code, const std::string& message) noexcept {
    abort(make_error(code, message));
  }

  /// Asks every rank whether it is there, and waits at most `limit` for answers; called when nothing has arrived for
  /// too long. Element r is rank r's answer. Empty: this transport cannot ask. It is called by the same threads as
  /// progress(), and throws as that does.
  [[nodiscard]] virtual std::vector<PeerState> ask(std::chrono::milliseconds limit);

  /// The rank whose connection broke, where this rank threw an Error(transport) for that. None: it did not, or the
  /// transport cannot tell. Any thread.
  [[nodiscard]] virtual std::optional<int> failed_peer() const noexcept { return std::nullopt; }

  [[nodiscard]] virtual TransportCounters counters() const = 0;
};

/// `world_size` endpoints in this process, one for each thread that plays a rank; element i is rank i. `nodes`: the
/// result of Transport::nodes. Error(invalid_argument) for a world below 1, or nodes that are not one a rank.
[[nodiscard]] std::vector<std::shared_ptr<Transport>> make_inproc_world(int world_size,
                                                                        const std::vector<std::uint32_t>& nodes = {});

}  // namespace gradwire

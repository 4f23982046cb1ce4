// The processes of a job that goes on when some of them end: how they reach each other beside the steps, and how those
// that are left get a transport.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/error.hpp"
#include "gradwire/transport.hpp"

namespace gradwire {

/// What one process has of it. The others hear that it has ended once end() was called, or a witness on its host saw it
/// go. A connection that is reset says nothing of that.
class Processes {
 public:
  /// Of a process; given once and never again.
  using Id = std::uint32_t;

  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  virtual ~Processes() = default;

  /// True once: they serve one session.
  [[nodiscard]] bool claim() noexcept { return !claimed_.exchange(true); }

  [[nodiscard]] virtual Id self() const noexcept = 0;
  /// All that there were at the beginning, ascending; the place of each is its rank then, but of the last ones where
  /// the policy has [elastic] spares. On a process that joined: without itself.
  [[nodiscard]] virtual std::vector<Id> all() const = 0;
  /// Whether this process joined a job that ran already: it is not among those of the beginning.
  [[nodiscard]] virtual bool joined() const noexcept { return false; }
  /// Whether others may join.
  [[nodiscard]] virtual bool open() const noexcept { return false; }
  /// Those that joined and are known here, ascending, also where they have ended; without this process. Their ids are
  /// above all of the beginning.
  [[nodiscard]] virtual std::vector<Id> newcomers() const { return {}; }
  /// "rank 3 (process 4711 on host node7)", or what is known of it.
  [[nodiscard]] virtual std::string describe(Id who) const = 0;

  /// What is long goes by `bulk`, so that it delays nothing that is `prompt`.
  enum class Lane : std::uint8_t { prompt, bulk };
  /// Any thread. Messages of a lane, up to 1 MiB each, come in the order of their sends; what cannot be sent is lost.
  /// Does not wait for `to`.
  virtual void send(Id to, std::span<const std::byte> message, Lane lane) noexcept = 0;
  void send(Id to, std::span<const std::byte> message) noexcept { send(to, message, Lane::prompt); }
  /// Bytes of this lane that are still to go to `to`. Any thread.
  [[nodiscard]] virtual std::uint64_t unsent(Id to, Lane lane) const noexcept = 0;

  struct Heard {
    Id from = 0;
    bool ended =
        false;          // it has ended, for certain: by its own word or that of its witness; nothing more comes from it
    bool came = false;  // it has joined, and can be reached from here on
    bool lost = false;  // it cannot be reached, and reconnecting failed; it may still run
    bool back = false;  // after `lost`: it can be reached again; what was sent meanwhile arrives, in order
    std::uint32_t epoch = 0;  // where `ended`: the last that it had said to enter(); 0: none
    std::uint64_t step = 0;   // where `ended`: the last that it had said to count()
    std::vector<std::byte> message = {};
  };
  /// What has come, in order within a lane; the end of a process behind all that it sent, that it came before. On a
  /// process that joined also that others had ended before. Waits for something, up to `wait`. One thread at a time.
  [[nodiscard]] virtual std::vector<Heard> hear(std::chrono::milliseconds wait) = 0;
  /// Ends a wait in hear(). Any thread.
  virtual void wake() noexcept = 0;
  /// Takes no part from here on: what it sends is lost, and it hears nothing. Any thread.
  virtual void end() noexcept = 0;

  /// This process has entered the world of `epoch`, and `step` of its steps counts: what the others hear with its end.
  /// To be said before a step is delivered there, and before this process relies on the step. Returns once its witness
  /// has it. Any thread.
  virtual void enter(std::uint32_t /*epoch*/) noexcept {}
  virtual void count(std::uint64_t /*step*/) noexcept {}
  /// The others go on without `who` for good, whether it has ended or not: who joins need not reach it. Any thread.
  virtual void leave_out(Id /*who*/) noexcept {}
  /// From here on a connection that ends or is reset is the end of its process, whatever closed it.
  virtual void trust_resets() noexcept {}

  /// Why this process must not end with status 0: what it delivered may not count. The first one stays. Any thread.
  void deny_success(const Error& error) {
    const std::lock_guard lock(denied_mutex_);
    if (!denied_) {
      denied_ = error;
    }
  }
  [[nodiscard]] std::optional<Error> success_denied() const {
    const std::lock_guard lock(denied_mutex_);
    return denied_;
  }

  /// A process has ended before its job did, or another world was made since; what it ends by may wait for it for ever.
  virtual void note_loss() noexcept {}
  /// This process has waited for a place as a rank, and the job has ended without it.
  virtual void note_no_place() noexcept {}

  /// A transport over `members`, ascending; the place of each is its rank. Each of them calls it, with the same list
  /// and epoch; nothing that was sent in another epoch arrives in it. It may wait for the others: until `timeout`, or
  /// for ever where one of them has ended meanwhile, so that the caller may have to leave this call behind. An abort of
  /// the transport need not reach other processes.
  [[nodiscard]] virtual std::shared_ptr<Transport> connect(std::span<const Id> members, std::uint32_t epoch,
                                                           std::chrono::milliseconds timeout) = 0;

 private:
  std::atomic<bool> claimed_ = false;
  mutable std::mutex denied_mutex_;
  std::optional<Error> denied_;
};

/// What mpi::elastic_main() ends a process with, where it is not 0, or 1 for any other error.
inline constexpr int kExitExpelled = 81;  // ErrorCode::expelled
inline constexpr int kExitTooFew = 82;    // ErrorCode::too_few

/// `count` processes that are threads of this one; element i is process i. `open`: others may join.
/// Error(invalid_argument) for a count below 1.
[[nodiscard]] std::vector<std::shared_ptr<Processes>> make_inproc_processes(int count, bool open = false);
/// One that joins those of which `one` is: open ones of make_inproc_processes(), or one that joined. Any thread.
[[nodiscard]] std::shared_ptr<Processes> join_inproc_processes(const Processes& one);

}  // namespace gradwire

// The processes of a job that goes on when some of them end: how they exchange messages outside the steps, and how the
// survivors get a transport.
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

/// One process's end of the group. The others hear that this process has ended once end() was called, or once a witness
/// on its host saw it end. A connection that is reset is no proof of an end.
class Processes {
 public:
  /// Number of a process; given once and never again.
  using Id = std::uint32_t;

  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  virtual ~Processes() = default;

  /// True for the first caller only: a Processes serves one session.
  [[nodiscard]] bool claim() noexcept { return !claimed_.exchange(true); }

  [[nodiscard]] virtual Id self() const noexcept = 0;
  /// All processes of the beginning, ascending. The place of each is its first rank, except for the last ones where the
  /// policy has [elastic] spares. A process that joined is not in its own list.
  [[nodiscard]] virtual std::vector<Id> all() const = 0;
  /// Whether this process joined a job that ran already: it is not in all().
  [[nodiscard]] virtual bool joined() const noexcept { return false; }
  /// Whether other processes may join.
  [[nodiscard]] virtual bool open() const noexcept { return false; }
  /// The other processes that joined and are known here, ascending, including those that have ended. Their ids are
  /// above those of all().
  [[nodiscard]] virtual std::vector<Id> newcomers() const { return {}; }
  /// "rank 3 (process 4711 on host node7)", or as much of that as is known.
  [[nodiscard]] virtual std::string describe(Id who) const = 0;

  /// Long messages go by `bulk`, so that they delay nothing that is `prompt`.
  enum class Lane : std::uint8_t { prompt, bulk };
  /// Sends a message of at most 1 MiB. Messages of one lane arrive in the order of their sends; a message that cannot
  /// be sent is lost. Any thread. Does not wait for `to`.
  virtual void send(Id to, std::span<const std::byte> message, Lane lane) noexcept = 0;
  void send(Id to, std::span<const std::byte> message) noexcept { send(to, message, Lane::prompt); }
  /// Bytes of this lane that are not sent to `to` yet. Any thread.
  [[nodiscard]] virtual std::uint64_t unsent(Id to, Lane lane) const noexcept = 0;

  struct Heard {
    Id from = 0;
    bool ended = false;       // it has certainly ended: it or its witness said so; nothing more comes from it
    bool came = false;        // it has joined, and is reachable from here on
    bool lost = false;        // it cannot be reached, and reconnecting failed; it may still run
    bool back = false;        // after `lost`: it is reachable again; messages sent meanwhile arrive, in order
    std::uint32_t epoch = 0;  // where `ended`: the last epoch that it gave to enter(); 0: none
    std::uint64_t step = 0;   // where `ended`: the last step that it gave to count()
    std::vector<std::byte> message = {};
  };
  /// Returns what has arrived, in order within a lane. A process's arrival comes before its messages, its end behind
  /// them all. A process that joined also hears of those that had ended before. Waits for something, up to `wait`. One
  /// thread at a time.
  [[nodiscard]] virtual std::vector<Heard> hear(std::chrono::milliseconds wait) = 0;
  /// Ends a wait in hear(). Any thread.
  virtual void wake() noexcept = 0;
  /// Ends this process's part in the group: from here on its messages are lost, and it hears nothing. Any thread.
  virtual void end() noexcept = 0;

  /// enter() records that this process has entered the world of `epoch`, and count() that step `step` counts there; the
  /// others hear both with its end. Call enter() before a step is delivered in that world, and count() before this
  /// process relies on the step. They return once the witness has the record. Any thread.
  virtual void enter(std::uint32_t /*epoch*/) noexcept {}
  virtual void count(std::uint64_t /*step*/) noexcept {}
  /// Says that the job goes on without `who` for good, whether it has ended or not, so that a process that joins need
  /// not reach it. Any thread.
  virtual void leave_out(Id /*who*/) noexcept {}
  /// Whether others than these processes can neither read nor change what they send, in the transports of connect(),
  /// too.
  [[nodiscard]] virtual bool encrypted() const noexcept { return false; }
  /// From here on a connection that ends or is reset counts as the end of its process, whatever closed it. Has no
  /// effect where connections are encrypted, since anybody on the network can reset them.
  virtual void trust_resets() noexcept {}

  /// Sets why this process must not end with status 0: a step that it delivered may not count. The first error stays.
  /// Any thread.
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

  /// Says that a process has ended before its job did, or that another world was made since: what this process calls at
  /// its end, such as MPI_Finalize, may wait for the lost process for ever.
  virtual void note_loss() noexcept {}
  /// Says that this process waited to become a rank until the job ended.
  virtual void note_no_place() noexcept {}

  /// A transport over `members`, ascending; the place of each is its rank. Each member calls it, with the same list and
  /// epoch; nothing that was sent in another epoch arrives in it. It may wait for the other members until `timeout`, or
  /// for ever where one of them has ended meanwhile, so that the caller may have to abandon this call. An abort of the
  /// transport need not reach other processes. An Error that comes of another process, such as one that does not
  /// answer, has the cause `world`: the caller then goes on in the next world. With any other cause it leaves the job.
  [[nodiscard]] virtual std::shared_ptr<Transport> connect(std::span<const Id> members, std::uint32_t epoch,
                                                           std::chrono::milliseconds timeout) = 0;

 private:
  std::atomic<bool> claimed_ = false;
  mutable std::mutex denied_mutex_;
  std::optional<Error> denied_;
};

/// The exit codes of mpi::elastic_main() beside 0 and 1, which stands for any other error.
inline constexpr int kExitExpelled = 81;  // ErrorCode::expelled
inline constexpr int kExitTooFew = 82;    // ErrorCode::too_few

/// `count` processes that are threads of this one; element i is process i. `open`: other threads may join.
/// Error(invalid_argument) for a count below 1.
[[nodiscard]] std::vector<std::shared_ptr<Processes>> make_inproc_processes(int count, bool open = false);
/// A process that joins the group of `one`, which make_inproc_processes() made open or which joined itself. Any thread.
[[nodiscard]] std::shared_ptr<Processes> join_inproc_processes(const Processes& one);

}  // namespace gradwire

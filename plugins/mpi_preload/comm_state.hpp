// What the drop-in knows of one of the job's communicators. It hangs on the communicator as an attribute, whose delete
// callback frees it with the private communicators that it made.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "drop_in/decision.hpp"
#include "drop_in/member.hpp"
#include "plugins/mpi_preload/known_calls.hpp"

namespace gradwire::mpi_preload {

class Requests;
class SettingsExchange;

struct CommState {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;  // of the local group
  bool inter = false;
  bool threads = false;  // MPI_THREAD_MULTIPLE, on this rank

  /// Calls of fewer elements are below the floor whatever their type; 0 until the ranks have agreed.
  std::atomic<std::uint64_t> small_below = 0;

  /// Calls that are counted in no more detail: those that are small, and those that return requests.
  struct Passed {
    std::atomic<std::uint64_t> calls = 0;
    std::atomic<std::uint64_t> bytes = 0;
    // Calls on one communicator do not overlap, so there is nothing to lose between load and store.
    void add(std::uint64_t more) noexcept {
      calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      bytes.store(bytes.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    }
  };
  static constexpr std::size_t kFunctions =
      static_cast<std::size_t>(drop_in::Function::mpi_reduce_scatter_block_init) + 1;
  std::array<Passed, kFunctions> passed;
  [[nodiscard]] Passed& passed_of(drop_in::Function function) { return passed[static_cast<std::size_t>(function)]; }
  /// All of them: the same on every rank when it calls the same collective.
  [[nodiscard]] std::uint64_t passed_calls() const {
    std::uint64_t calls = known.calls() + others;
    for (const Passed& each : passed) {
      calls += each.calls;
    }
    return calls;
  }

  KnownCalls known;

  mutable std::mutex mutex;
  drop_in::CommunicatorName name;
  std::unique_ptr<drop_in::Member> member;  // once the ranks have agreed
  std::atomic<bool> agreed = false;         // and it is there
  drop_in::Agreement agreement;
  std::string failure;  // not empty: ranks are out of step, and no call can be made right again

  // What follows is used inside the job's calls only, which do not overlap on one communicator.
  std::uint64_t others = 0;            // calls that were counted elsewhere: they return a request and passed
  MPI_Comm beside = MPI_COMM_NULL;     // of the same ranks, for what is not made inside the job's calls
  bool told = false;                   // why they pass
  std::unique_ptr<Requests> requests;  // once a call that returns a request may be compressed
  // The first call was one that returns a request, so its thread finishes the agreement. Other ranks may know of its
  // end at another call, so all later ones of 4 KiB of floats or more are made by the thread, too.
  bool apart = false;

  /// A rank has ended, or it was revoked: all calls are MPI's own, which says so.
  std::atomic<bool> lost = false;

  CommState();
  CommState(const CommState&) = delete;
  CommState& operator=(const CommState&) = delete;
  /// Leaves what it counted in the ledger.
  ~CommState();
  /// Adds what it counted. `early`: a thread of the job may be inside a call, and is not waited for.
  void count_into(drop_in::Ledger& ledger, bool early) const;

  /// The agreement, once: every rank of the communicator enters here inside its first blocking call, whatever that is
  /// and however this rank is configured. Throws Error(timeout) that names who did not.
  void reach_agreement();
  /// The same in two parts. The first, inside a call of the job, waits for nobody: the other ranks may wait for what
  /// the job does after it.
  void begin_agreement();
  void complete_agreement();
  /// Whether calls that return a request are compressed. Once the ranks have agreed.
  [[nodiscard]] bool takes_requests() const noexcept {
    return !inter && size > 1 && agreement.requests && !agreement.disabled && !agreement.ranks_differ &&
           !agreement.dry_run;
  }
  /// Under the mutex.
  void fail(const std::string& why) {
    failure = why;
    small_below = 0;
  }
  /// Under the mutex, outside calls: if MPI says that a rank has ended or that it was revoked, drops all that was kept
  /// for its calls, and these are MPI's own from then on. Whether that is so.
  bool drop_if_faulty() noexcept;
  /// The job has revoked the communicator: ends what other ranks do on private ones. Any thread.
  void revoke_private() noexcept;

 private:
  [[nodiscard]] drop_in::RankSettings settings_of_rank() const;
  [[nodiscard]] bool holds_all_ranks() const;
  [[nodiscard]] drop_in::CommunicatorName find_name() const;
  [[nodiscard]] MPI_Comm make_private() const;
  [[nodiscard]] MPI_Comm make_private_apart() const;
  [[nodiscard]] std::shared_ptr<Transport> connect() const;

  mutable std::mutex connecting_;               // of what follows
  mutable std::weak_ptr<Transport> transport_;  // of the member
  bool revoked_ = false;                        // by this rank

  std::unique_ptr<SettingsExchange> answers_;
  std::unique_ptr<SettingsExchange> last_answers_;
};

/// Null where there is nothing to know: a null handle, MPI is not up, or MPI refuses.
[[nodiscard]] CommState* find_state(MPI_Comm comm) noexcept;
/// The state that `comm` has, if any; none is made.
[[nodiscard]] CommState* known_state(MPI_Comm comm) noexcept;
/// Returns when the calls on `comm` that returned requests are complete, those that the job has let go of included.
void drain_requests(MPI_Comm comm) noexcept;
/// Frees those of all communicators that still have one, in the same order on all ranks: it is collective.
void free_states();

// A communicator's state without asking MPI: the last few of this thread. Every deletion makes all of them stale.
struct CachedState {
  MPI_Comm comm;
  CommState* state;
  std::uint64_t generation;
};
inline constexpr std::size_t kCachedStates = 4;
extern constinit thread_local std::array<CachedState, kCachedStates> t_cached
    __attribute__((tls_model("initial-exec")));
extern std::atomic<std::uint64_t> g_generation;

[[nodiscard]] inline CachedState& cache_slot(MPI_Comm comm) noexcept {
  const auto bits = (std::uint64_t)comm;  // NOLINT: a pointer in one library, an int in the other
  return t_cached[(bits ^ (bits >> 8)) % kCachedStates];
}

[[nodiscard]] inline CommState* cached_state(MPI_Comm comm) noexcept {
  const CachedState& slot = cache_slot(comm);
  return slot.comm == comm && slot.generation == g_generation.load(std::memory_order_acquire) ? slot.state : nullptr;
}

}  // namespace gradwire::mpi_preload

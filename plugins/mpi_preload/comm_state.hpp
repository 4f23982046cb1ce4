// The drop-in's state for one of the job's communicators. It is attached to the communicator as an attribute, whose
// delete callback frees it.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "choice/decision.hpp"
#include "drop_in/call_queue.hpp"
#include "drop_in/host_reducer.hpp"
#include "plugins/mpi_preload/known_calls.hpp"
#include "transport/mpi_world.hpp"

namespace gradwire::mpi_preload {

class Requests;
struct Reduce;
struct Terms;

struct CommState {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;  // size of the local group
  bool inter = false;
  bool foreign = false;     // a rank does not belong to MPI_COMM_WORLD
  bool of_session = false;  // a session of gradwire made it, so that its calls pass and are not counted
  std::vector<int> ranks;   // as ranks of MPI_COMM_WORLD

  /// Calls of fewer elements are below the floor with any type.
  std::atomic<std::uint64_t> small_below = 0;

  /// Calls that are counted without further details.
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
      static_cast<std::size_t>(choice::Function::mpi_reduce_scatter_block_init) + 1;
  std::array<Passed, kFunctions> passed;
  [[nodiscard]] Passed& passed_of(choice::Function function) { return passed[static_cast<std::size_t>(function)]; }
  /// The number of all passed calls, which is the same on every rank inside the same collective.
  [[nodiscard]] std::uint64_t passed_calls() const {
    std::uint64_t calls = known.calls() + others;
    for (const Passed& each : passed) {
      calls += each.calls;
    }
    return calls;
  }

  KnownCalls known;

  mutable Mutex mutex;
  drop_in::CommunicatorName name;
  std::unique_ptr<drop_in::HostReducer> reducer GUARDED_BY(mutex);
  std::string failure GUARDED_BY(mutex);  // not empty: ranks are out of step, and no later call can be right

  // The members below are used only inside the job's calls, which do not overlap on one communicator. They are the same
  // on all ranks, since they depend only on the calls and on what ranks agreed on.
  std::string call;                 // the call under way, for lines about missing ranks
  std::uint64_t others = 0;         // calls that were counted elsewhere: they return a request and passed
  std::uint64_t compressible = 0;   // calls that the policy could compress, if the communicator had a slot
  bool lacks_memory = false;        // some rank has no memory for what a call takes, so calls pass for good
  bool asked_for_memory = false;    // ranks have agreed whether they have memory for such a call
  bool wants_requests = false;      // a call that returns a request could have been compressed
  bool asked_for_requests = false;  // ranks have agreed whether to compress such calls
  bool reason_logged = false;       // the reason why calls pass was logged
  std::map<std::pair<std::uint64_t, DType>, bool> at_once;  // by elements and type: see decides_at_once()
  std::unique_ptr<Requests> requests;                       // set where ranks agreed to compress calls that return one

  /// The reducer for a thread that makes a call but does not hold the mutex: what it reads changes only in calls, which
  /// do not overlap on one communicator.
  [[nodiscard]] const drop_in::HostReducer& reducer_in_call() const noexcept NO_THREAD_SAFETY_ANALYSIS {
    return *reducer;
  }

  /// A rank has ended, or the communicator was revoked: all calls are MPI's own, which reports that.
  std::atomic<bool> lost = false;

  explicit CommState(MPI_Comm of);
  CommState(const CommState&) = delete;
  CommState& operator=(const CommState&) = delete;
  /// Adds its counts to the ledger.
  ~CommState();
  /// Adds its counts to a ledger. `early`: a thread of the job may be inside a call, for which this does not wait.
  void count_into(drop_in::Ledger& ledger, bool early) const;

  /// Called before a blocking call, which is the same on every rank. If the policy could compress the call, or one that
  /// returned a request, and the ranks have not agreed on that, they do so now. The call waits for the other ranks as
  /// the library's own would.
  void settle(const Reduce& made, bool could_compress) REQUIRES(mutex);
  /// Whether the arguments and the policy alone decide that such a call is compressed. Needs no mutex.
  [[nodiscard]] bool decides_at_once(const choice::Call& call);
  /// Whether the ranks agree about requests in the next blocking call of any size.
  [[nodiscard]] bool agrees_next() const noexcept { return wants_requests && !asked_for_requests; }
  /// Whether it has a slot, so that calls on it may be compressed.
  [[nodiscard]] bool has_slot() const noexcept { return slot_.lease != nullptr; }
  /// Called for MPI_COMM_WORLD in MPI_Init, where ranks have agreed on everything except the memory for a call.
  /// `queue`: set where requests can be compressed.
  void settle_world(std::unique_ptr<drop_in::CallQueue> queue);
  void fail(const std::string& why) REQUIRES(mutex) {
    failure = why;
    small_below = 0;
  }
  /// Called outside calls: if MPI says that a rank has ended or that the communicator was revoked, drops everything
  /// that was kept for its calls, which are MPI's own from then on, and returns true.
  bool drop_if_faulty() noexcept REQUIRES(mutex);
  /// Called after the job has revoked the communicator: ends the work of other ranks for it. Any thread.
  void revoke_private() noexcept;

 private:
  [[nodiscard]] std::vector<int> find_ranks() const;
  void check_consent(const Terms& all) REQUIRES(mutex);
  [[nodiscard]] drop_in::CommunicatorName find_name() const;
  [[nodiscard]] Terms terms_of_rank(const Reduce& made, bool for_requests, std::unique_ptr<drop_in::CallQueue>& queue);
  [[nodiscard]] std::uint32_t next_order() const;
  void take_order(std::uint32_t order) REQUIRES(mutex);
  void drop() noexcept REQUIRES(mutex);
  [[nodiscard]] std::shared_ptr<Transport> connect();

  transport::MpiSlot slot_;
  bool ordered_ = false;  // the name has its number
  mutable Mutex connecting_;
  mutable std::weak_ptr<Transport> transport_ GUARDED_BY(connecting_);  // the reducer's transport
  bool revoked_ GUARDED_BY(connecting_) = false;                        // this rank has revoked the communicator
};

/// The state of a communicator; null for a null handle, or where MPI is not up or refuses.
[[nodiscard]] CommState* find_state(MPI_Comm comm) noexcept;
/// Whether a session of the program makes the calls on this communicator. As find_state(), for any handle.
[[nodiscard]] bool of_session(MPI_Comm comm) noexcept;
/// The state that `comm` has, if any; none is made.
[[nodiscard]] CommState* known_state(MPI_Comm comm) noexcept;
/// Makes the state of MPI_COMM_WORLD; called in MPI_Init.
void make_world_state(std::unique_ptr<drop_in::CallQueue> queue);
/// Waits until all calls on `comm` that returned requests are complete, also those whose request the job has freed.
void drain_requests(MPI_Comm comm) noexcept;
/// Frees the states of all communicators that still have one. It is collective, in the same order on all ranks.
void free_states();

// A cache of the states that this thread used last, so that MPI need not be asked. Each deletion makes it stale.
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

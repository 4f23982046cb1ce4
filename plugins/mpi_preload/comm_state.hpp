// What the drop-in knows of one of the job's communicators. It hangs on the communicator as an attribute, whose delete
// callback frees it.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "choice/decision.hpp"
#include "drop_in/call_queue.hpp"
#include "drop_in/member.hpp"
#include "plugins/mpi_preload/known_calls.hpp"
#include "transport/mpi_world.hpp"

namespace gradwire::mpi_preload {

class Requests;
struct Reduce;
struct Terms;

struct CommState {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;  // of the local group
  bool inter = false;
  bool foreign = false;    // some rank is not of MPI_COMM_WORLD
  std::vector<int> ranks;  // as ranks of MPI_COMM_WORLD

  /// Calls of fewer elements are below the floor whatever their type.
  std::atomic<std::uint64_t> small_below = 0;

  /// Calls that are counted in no more detail.
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
  std::unique_ptr<drop_in::Member> member;
  std::string failure;  // not empty: ranks are out of step, and no call can be made right again

  // What follows is used inside the job's calls only, which do not overlap on one communicator. Ranks have the same
  // here: it follows from their calls and from what they agreed on.
  std::string call;                 // that is under way, for lines about ranks that do not come
  std::uint64_t others = 0;         // calls that were counted elsewhere: they return a request and passed
  std::uint64_t compressible = 0;   // calls that the agreed policy could compress, without a slot
  bool asked_for_memory = false;    // ranks have said whether they have any for such a call
  bool wants_requests = false;      // a call that returns a request could have been compressed
  bool asked_for_requests = false;  // and the ranks have agreed about that
  bool told = false;                // why they pass
  std::map<std::pair<std::uint64_t, DType>, bool> at_once;  // by elements and type: see decides_at_once()
  std::unique_ptr<Requests> requests;                       // the ranks agreed to compress calls that return one

  /// A rank has ended, or it was revoked: all calls are MPI's own, which says so.
  std::atomic<bool> lost = false;

  explicit CommState(MPI_Comm of);
  CommState(const CommState&) = delete;
  CommState& operator=(const CommState&) = delete;
  /// Leaves what it counted in the ledger.
  ~CommState();
  /// Adds what it counted. `early`: a thread of the job may be inside a call, and is not waited for.
  void count_into(drop_in::Ledger& ledger, bool early) const;

  /// Before a blocking call on it, the same one on every rank. Where the policy could compress the call, or one that
  /// returned a request, and the ranks have not agreed on that: they do. Under the mutex; waits for the other ranks as
  /// the library's own call would.
  void settle(const Reduce& made, bool could_compress);
  /// Whether it follows from the arguments and the policy alone that such a call is compressed. Without the mutex.
  [[nodiscard]] bool decides_at_once(const choice::Call& call);
  /// Whether the ranks agree about requests in the next blocking call, whatever its size.
  [[nodiscard]] bool agrees_next() const noexcept { return wants_requests && !asked_for_requests; }
  /// Whether it has a slot, so that calls on it may be compressed.
  [[nodiscard]] bool has_slot() const noexcept { return slot_.lease != nullptr; }
  /// MPI_COMM_WORLD, in MPI_Init: all but the memory for a call is agreed on already. `queue`: where requests can be
  /// compressed.
  void settle_world(std::unique_ptr<drop_in::CallQueue> queue);
  /// Under the mutex.
  void fail(const std::string& why) {
    failure = why;
    small_below = 0;
  }
  /// Under the mutex, outside calls: if MPI says that a rank has ended or that it was revoked, drops all that was kept
  /// for its calls, and these are MPI's own from then on. Whether that is so.
  bool drop_if_faulty() noexcept;
  /// The job has revoked the communicator: ends what other ranks do for it. Any thread.
  void revoke_private() noexcept;

 private:
  [[nodiscard]] std::vector<int> find_ranks() const;
  [[nodiscard]] drop_in::CommunicatorName find_name() const;
  [[nodiscard]] Terms terms_of_rank(const Reduce& made, bool for_requests, std::unique_ptr<drop_in::CallQueue>& queue);
  [[nodiscard]] std::uint32_t next_order() const;
  void take_order(std::uint32_t order);
  void drop() noexcept;
  [[nodiscard]] std::shared_ptr<Transport> connect();

  transport::MpiSlot slot_;
  bool ordered_ = false;                        // the name has its number
  mutable std::mutex connecting_;               // of what follows
  mutable std::weak_ptr<Transport> transport_;  // of the member
  bool revoked_ = false;                        // by this rank
};

/// Null where there is nothing to know: a null handle, MPI is not up, or MPI refuses.
[[nodiscard]] CommState* find_state(MPI_Comm comm) noexcept;
/// The state that `comm` has, if any; none is made.
[[nodiscard]] CommState* known_state(MPI_Comm comm) noexcept;
/// That of MPI_COMM_WORLD, in MPI_Init.
void make_world_state(std::unique_ptr<drop_in::CallQueue> queue);
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

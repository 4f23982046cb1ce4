// Finds what the drop-in knows of a communicator: an attribute of it, and the calling thread's cache.
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "plugins/mpi_preload/child.hpp"
#include "plugins/mpi_preload/comm_state.hpp"
#include "plugins/mpi_preload/process.hpp"
#include "plugins/mpi_preload/requests.hpp"
#include "transport/mpi_check.hpp"

namespace gradwire::mpi_preload {

constinit thread_local std::array<CachedState, kCachedStates> t_cached{};
std::atomic<std::uint64_t> g_generation = 1;  // 0 is the generation of an empty cache

namespace {

using transport::check_mpi;

int on_delete(MPI_Comm, int, void* value, void*) noexcept {
  if (in_child()) {
    return MPI_SUCCESS;  // in a forked child the requests are the parent's
  }
  auto* state = static_cast<CommState*>(value);
  {
    const MutexLock lock(process().mutex);
    std::erase(process().states, state);
  }
  ++g_generation;
  delete state;
  return MPI_SUCCESS;
}

int keyval() {
  // This is not the mutex that on_delete takes, since on_delete is called under a lock of the library, which creating a
  // key takes, too.
  static Mutex mutex;
  const MutexLock lock(mutex);
  int& key = process().keyval;
  if (key == MPI_KEYVAL_INVALID) {
    // A duplicate of the communicator starts anew.
    check_mpi(PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &on_delete, &key, nullptr), "MPI_Comm_create_keyval");
  }
  return key;
}

CommState* make_state(MPI_Comm comm, int key) {
  auto state = std::make_unique<CommState>(comm);
  check_mpi(PMPI_Comm_set_attr(comm, key, state.get()), "MPI_Comm_set_attr");
  const MutexLock lock(process().mutex);
  process().states.push_back(state.get());
  return state.release();
}

// Reports that MPI_Init was called without the drop-in.
void tell_not_begun() {
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) {
    g_standing = CallHandling::forwards;
    warn_once(
        "every call is passed through: MPI_Init was not called through gradwire; preload it, or put -lgradwire_mpi "
        "or the header gradwire/replace/mpi.h where MPI_Init is called, too");
  }
}

// Reports that a job uses sessions of MPI: these need no MPI_Init, in which ranks agree on what to do.
void tell_of_sessions(MPI_Comm comm) {
  static std::atomic<bool> told{false};
  int initialized = 0;
  int of_comm = -1;
  PMPI_Initialized(&initialized);
  const Process& self = process();
  if (initialized == 0 && self.understood && self.configuration.compresses() && !self.configuration.quiet &&
      !told.exchange(true) && PMPI_Comm_rank(comm, &of_comm) == MPI_SUCCESS && of_comm == 0) {
    say("calls on communicators of an MPI session pass before MPI_Init was called; after it they are compressed, too");
  }
}

}  // namespace

CommState* find_state(MPI_Comm comm) noexcept {
  if (CommState* known = cached_state(comm)) {
    return known;
  }
  stop_if_foreign();
  try {
    if (comm == MPI_COMM_NULL) {
      return nullptr;
    }
    if (!may_act()) {
      tell_of_sessions(comm);
      return nullptr;
    }
    const CallHandling standing = g_standing;
    if (standing == CallHandling::not_begun) {
      tell_not_begun();
    }
    if (standing != CallHandling::observes && standing != CallHandling::compresses) {
      return nullptr;
    }
    const std::uint64_t generation = g_generation.load(std::memory_order_acquire);
    const int key = keyval();
    void* value = nullptr;
    int found = 0;
    check_mpi(PMPI_Comm_get_attr(comm, key, &value, &found), "MPI_Comm_get_attr");
    auto* state = found != 0 ? static_cast<CommState*>(value) : make_state(comm, key);
    cache_slot(comm) = {comm, state, generation};
    return state;
  } catch (...) {  // the communicator's calls are then forwarded unchanged
    return nullptr;
  }
}

bool of_session(MPI_Comm comm) noexcept {
  const CommState* state = find_state(comm);
  return state != nullptr && state->of_session;
}

void make_world_state(std::unique_ptr<drop_in::CallQueue> queue) {
  make_state(MPI_COMM_WORLD, keyval())->settle_world(std::move(queue));
}

void free_states() {
  std::vector<MPI_Comm> comms;
  {
    const MutexLock lock(process().mutex);
    for (const CommState* state : process().states) {
      comms.push_back(state->comm);
    }
  }
  for (MPI_Comm comm : comms) {
    PMPI_Comm_delete_attr(comm, process().keyval);
  }
}

CommState* known_state(MPI_Comm comm) noexcept {
  const int key = process().keyval;
  void* value = nullptr;
  int found = 0;
  const bool known = key != MPI_KEYVAL_INVALID && comm != MPI_COMM_NULL && may_act() &&
                     PMPI_Comm_get_attr(comm, key, &value, &found) == MPI_SUCCESS && found != 0;
  return known ? static_cast<CommState*>(value) : nullptr;
}

void drain_requests(MPI_Comm comm) noexcept {
  const CommState* state = known_state(comm);
  if (state != nullptr && state->requests) {
    state->requests->drain();
  }
}

}  // namespace gradwire::mpi_preload

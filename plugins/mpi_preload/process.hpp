// What the drop-in keeps for the whole process. Never destroyed: MPI_Finalize may run in an atexit handler.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "drop_in/configuration.hpp"
#include "drop_in/ledger.hpp"
#include "plugins/mpi_preload/buffer_names.hpp"
#include "transport/mpi_world.hpp"

namespace gradwire::mpi_preload {

struct CommState;

/// What this process does with the job's calls, once MPI_Init has returned.
enum class Standing : std::uint8_t {
  not_begun,   ///< MPI_Init was not seen, or has not returned.
  forwards,    ///< Hands every call on and keeps nothing of it.
  observes,    ///< Hands every call on, counts and times it. Sends nothing.
  compresses,  ///< All ranks agreed on a codec or a policy.
};
extern constinit std::atomic<Standing> g_standing;
/// The one look that a forwarded call takes.
[[nodiscard]] inline bool forwards_only() noexcept {
  return g_standing.load(std::memory_order_relaxed) == Standing::forwards;
}
[[nodiscard]] inline bool compresses() noexcept {
  return g_standing.load(std::memory_order_relaxed) == Standing::compresses;
}

struct Process {
  const drop_in::Configuration configuration = drop_in::Configuration::read(true);
  drop_in::Ledger ledger;

  /// The library that answers is of the kind this drop-in was built for, so that handles mean what the header says.
  bool understood = false;
  std::string implementation;  // "Open MPI 4.1.4"
  std::string foreign;         // where it is not understood: why
  // Then: whether its handles are pointers where they are ints here, so that half of each is lost on the way.
  bool wide_handles = false;

  /// What all ranks of MPI_COMM_WORLD agreed on, in MPI_Init; not changed afterwards.
  drop_in::Agreement agreement;
  bool all_are_here = false;                   // every rank has the drop-in
  std::shared_ptr<transport::MpiWorld> world;  // while compressing
  std::atomic<std::uint32_t> numbered = 0;     // communicators whose rank 0 this one is

  int keyval = MPI_KEYVAL_INVALID;  // of the attribute that holds a CommState

  Mutex mutex;
  // In the order of their first calls, which is the same on all their ranks.
  std::vector<CommState*> states GUARDED_BY(mutex);
  std::set<std::string> warned GUARDED_BY(mutex);
  // By all but their number: how many.
  std::map<drop_in::CommunicatorName, std::uint32_t> communicators GUARDED_BY(mutex);
  BufferNames names GUARDED_BY(mutex);

  std::atomic<bool> any_names = false;
  std::atomic<bool> finished = false;
  std::atomic<bool> failed = false;  // some communicator is

  Process();
};

[[nodiscard]] Process& process();

/// Between MPI_Init and MPI_Finalize, with a library that we understand.
[[nodiscard]] bool may_act() noexcept;

/// What MPI_Init is to do before and after the library's own. Every rank of the job comes here, in its own thread.
void before_init() noexcept;
void after_init() noexcept;

/// Ends the process, with a sentence, where forwarding a call would hand the library damaged handles.
void stop_if_foreign() noexcept;

/// Prints a line "gradwire: ..." on standard error.
void say(const std::string& line) noexcept;
/// A line of the log: "gradwire 14:03:59 rank 2: ...", by rank of MPI_COMM_WORLD.
void tell(const std::string& line) noexcept;
/// The same, once for each text.
void warn_once(const std::string& line);

/// Tells why a communicator's calls fail, and returns a code of MPI with that text for its error handler.
[[nodiscard]] int announce(const std::string& message);

/// What the job calls this buffer, or empty.
[[nodiscard]] std::string name_of_buffer(const void* buffer);

}  // namespace gradwire::mpi_preload

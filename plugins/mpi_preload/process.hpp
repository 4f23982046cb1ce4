// The drop-in's state for the whole process. It is never destroyed, since MPI_Finalize may run in an atexit handler.
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

/// How this process handles the job's calls, once MPI_Init has returned.
enum class CallHandling : std::uint8_t {
  not_begun,   ///< MPI_Init was not seen, or has not returned.
  forwards,    ///< Passes every call on and keeps nothing of it.
  observes,    ///< Passes every call on, counts and times it. Sends nothing.
  compresses,  ///< All ranks agreed on a codec or a policy.
};
extern constinit std::atomic<CallHandling> g_standing;
/// The only check that a forwarded call needs.
[[nodiscard]] inline bool forwards_only() noexcept {
  return g_standing.load(std::memory_order_relaxed) == CallHandling::forwards;
}
[[nodiscard]] inline bool compresses() noexcept {
  return g_standing.load(std::memory_order_relaxed) == CallHandling::compresses;
}

struct Process {
  const drop_in::Configuration configuration =
      drop_in::Configuration::read(true, drop_in::Configuration::KeyUse::encrypts);
  drop_in::Ledger ledger;

  /// Whether the MPI library is of the kind for which this drop-in was built, so that handles mean what the header
  /// says.
  bool understood = false;
  std::string implementation;  // "Open MPI 4.1.4"
  std::string foreign;         // the reason where it is not understood
  // In that case: whether its handles are pointers where they are ints here, so that half of each would be lost.
  bool wide_handles = false;

  /// The agreement of all ranks of MPI_COMM_WORLD in MPI_Init; it does not change afterwards.
  drop_in::AgreedSettings agreement;
  bool all_ranks_have_drop_in = false;         // every rank has the drop-in
  std::shared_ptr<transport::MpiWorld> world;  // while compressing
  std::atomic<std::uint32_t> numbered = 0;     // number of communicators whose rank 0 is this rank

  int keyval = MPI_KEYVAL_INVALID;  // key of the attribute that holds a CommState

  Mutex mutex;
  // In the order of their first calls, which is the same on all their ranks.
  std::vector<CommState*> states GUARDED_BY(mutex);
  std::set<std::string> warned GUARDED_BY(mutex);
  // How many there are, by name without number.
  std::map<drop_in::CommunicatorName, std::uint32_t> communicators GUARDED_BY(mutex);
  BufferNames names GUARDED_BY(mutex);

  std::atomic<bool> any_names = false;
  std::atomic<bool> finished = false;
  std::atomic<bool> failed = false;       // a communicator has failed
  std::atomic<bool> has_session = false;  // the program itself uses a session or a communicator of the library

  Process();
};

[[nodiscard]] Process& process();

/// Whether MPI is between MPI_Init and MPI_Finalize, and the library is one that we understand.
[[nodiscard]] bool may_act() noexcept;

/// To be called in MPI_Init before and after the library's own, on every rank of the job, in its own thread.
void before_init() noexcept;
void after_init() noexcept;

/// Ends the process, with a message, where forwarding a call would give the library damaged handles.
void stop_if_foreign() noexcept;

/// Prints a line "gradwire: ..." on standard error.
void say(const std::string& line) noexcept;
/// Writes a line of the log: "gradwire 14:03:59 rank 2: ...", with the rank in MPI_COMM_WORLD.
void tell(const std::string& line) noexcept;
/// The same, once for each text.
void warn_once(const std::string& line);

/// Logs why a communicator's calls fail, and returns an MPI code with that text for its error handler.
[[nodiscard]] int announce(const std::string& message);

/// The job's name of this buffer, or an empty text.
[[nodiscard]] std::string name_of_buffer(const void* buffer);

}  // namespace gradwire::mpi_preload

// What the drop-in keeps for the whole process. Never destroyed: MPI_Finalize may run in an atexit handler.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "drop_in/configuration.hpp"
#include "drop_in/ledger.hpp"
#include "plugins/mpi_preload/buffer_names.hpp"

namespace gradwire::mpi_preload {

struct CommState;

struct Process {
  const drop_in::Configuration configuration = drop_in::Configuration::read(true);
  drop_in::Ledger ledger;

  /// The library that answers is of the kind this drop-in was built for, so that handles mean what the header says.
  bool understood = false;
  std::string implementation;  // "Open MPI 4.1.4"
  std::string foreign;         // where it is not understood: why
  // Then: whether its handles are pointers where they are ints here, so that half of each is lost on the way.
  bool wide_handles = false;

  int keyval = MPI_KEYVAL_INVALID;  // of the attribute that holds a CommState

  std::mutex mutex;                // of what follows
  std::vector<CommState*> states;  // in the order of their first calls, which is the same on all their ranks
  std::set<std::string> warned;
  std::map<drop_in::CommunicatorName, std::uint32_t> communicators;  // by all but their number: how many
  /// What all ranks of MPI_COMM_WORLD agreed on, in a call of the job on that or on a communicator of the same ranks:
  /// each of them has it, or none.
  std::optional<drop_in::Agreement> agreed_by_all;
  BufferNames names;

  std::atomic<bool> any_names = false;
  std::atomic<bool> finished = false;
  std::atomic<bool> failed = false;  // some communicator is

  Process();
};

[[nodiscard]] Process& process();

/// Between MPI_Init and MPI_Finalize, with a library that we understand.
[[nodiscard]] bool may_act() noexcept;

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

// Which threads may communicate.
#pragma once

#include <cstdint>

namespace gradwire {

/// The MPI adapter sets it from the level that MPI_Init_thread granted. Each value restricts callers more than the one
/// before it.
enum class Threading : std::uint8_t {
  background,   // a thread of the library communicates, or a caller who waits (MPI_THREAD_MULTIPLE, inproc)
  serialized,   // calls progress, under a lock (MPI_THREAD_SERIALIZED)
  main_thread,  // only the thread that made the object communicates; on other threads Session::ready() only enqueues
                // (FUNNELED, SINGLE)
};

/// Returns the value that restricts callers more: the one that fits where both must hold, such as what a caller asks
/// for and what MPI grants.
[[nodiscard]] constexpr Threading more_restricted(Threading a, Threading b) noexcept { return a < b ? b : a; }

}  // namespace gradwire

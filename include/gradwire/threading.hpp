// Which threads may communicate.
#pragma once

#include <cstdint>

namespace gradwire {

/// The MPI adapter sets it from the level that MPI_Init_thread granted.
enum class Threading : std::uint8_t {
  background,   // a thread of the library communicates, or a caller who waits (MPI_THREAD_MULTIPLE, inproc)
  serialized,   // calls progress, under a lock (MPI_THREAD_SERIALIZED)
  main_thread,  // only the thread that made the object communicates; on other threads Session::ready() only enqueues
                // (FUNNELED, SINGLE)
};

}  // namespace gradwire

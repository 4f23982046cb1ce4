// The drop-in passes a call on to the next definition of the same name in link order, as if the drop-in were not there.
// So a tool that stands behind it (a profiler that is preloaded or linked) sees the job's calls. The drop-in's own
// messages go to the library's PMPI_ names, past all tools.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "choice/decision.hpp"
#include "plugins/mpi_preload/child.hpp"

namespace gradwire::mpi_preload {

/// The next definition behind this library (behind libgradwire_any.so, if that has loaded it), never one of gradwire's
/// own; null where there is none, for example in a program that is linked with the library before gradwire.
[[nodiscard]] void* find_next(const char* name) noexcept;

/// The next definition of the function whose profiling name is `Profiling`, or that one itself. It is searched once;
/// later calls are an atomic load.
template <auto Profiling>
[[nodiscard]] inline decltype(Profiling) next(const char* name) noexcept {
  static constinit std::atomic<decltype(Profiling)> known{nullptr};
  auto found = known.load(std::memory_order_relaxed);
  if (found == nullptr) [[unlikely]] {
    found = reinterpret_cast<decltype(Profiling)>(find_next(name));
    found = found == nullptr ? Profiling : found;
    known.store(found, std::memory_order_relaxed);
  }
  return found;
}
#define GRADWIRE_NEXT(name) (::gradwire::mpi_preload::next<&P##name>(#name))

/// The object that the job's calls of this function reach before gradwire, such as a profiler that is preloaded in
/// front of it or the program itself; empty where gradwire is the first.
[[nodiscard]] std::string object_in_front(const char* name);

/// Notes that a call of this function has reached gradwire, so an object in front of it forwards calls.
inline std::array<std::atomic<bool>, 256> g_reached{};
inline void note_reached(choice::Function function) noexcept {
  std::atomic<bool>& reached = g_reached[static_cast<std::uint8_t>(function)];
  if (!reached.load(std::memory_order_relaxed)) [[unlikely]] {
    note_rank_process();  // needed in a job whose MPI_Init was not seen
    reached.store(true, std::memory_order_relaxed);
  }
}

}  // namespace gradwire::mpi_preload

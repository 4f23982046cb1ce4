// Decides on which memory node a process keeps its buffers, and on which of its processors its background threads run.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "memory/topology.hpp"

namespace gradwire::memory {

struct Placement {
  std::optional<unsigned> node;  // where buffers go; none: where they are touched first
  Processors threads;            // of background threads; empty: wherever the process may run
  int most_ranks = 0;            // of this host, if each is bound to as many cores of its own
  std::string why;               // for people
};

/// Decides by the processors that the process is `bound` to. Buffers go to the node with most of them; where several
/// have as many, to that of `card` (the network card that carries the job's traffic; empty: not known), else to the
/// first. Threads get the last cores of the binding on that node, one for each eight, as long as the process keeps
/// others; that is right only for up to `most_ranks` ranks. Where there is one node, or the process may run everywhere,
/// nothing is bound. The function is pure.
[[nodiscard]] Placement place(const Topology& topology, const Processors& bound, std::string_view card = {});

/// Returns the placement of this process, which is decided once. hwloc is loaded only where there are several nodes.
/// Where something is not known nothing is bound, and `why` says so. Any thread may call it.
[[nodiscard]] const Placement& own_placement();

/// Returns the processors that this process is bound to (the mask of its first thread).
[[nodiscard]] Processors own_processors();

/// Binds a thread of this process, by its number in the kernel, to the placement's processors. Does nothing where there
/// are none.
void bind_thread(int thread, const Placement& placement) noexcept;
/// Does the same for the calling thread.
inline void bind_this_thread(const Placement& placement) noexcept { bind_thread(0, placement); }

/// Asks for pages of [data, data + bytes), which must not have been touched, on the placement's node; others take them
/// where that node is full. Does nothing where there is no node.
void bind_memory(const Placement& placement, void* data, std::size_t bytes) noexcept;

}  // namespace gradwire::memory

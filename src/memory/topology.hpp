// A host's cores, memory nodes and network cards, as plain data that hwloc reads. hwloc (https://www.open-mpi.org/
// projects/hwloc) is loaded at the first call, so that nothing needs it that does not ask.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradwire::memory {

/// Holds processors (PUs of hwloc, hardware threads) by the system's numbers, ascending.
using Processors = std::vector<unsigned>;

struct Topology {
  struct Node {
    unsigned number = 0;      // the system's
    std::uint64_t bytes = 0;  // of its memory; 0: not known
    Processors processors;    // nearest to this memory
  };
  struct Core {
    Processors processors;
  };
  struct Card {
    std::string name;   // "eth0", "mlx5_0"
    unsigned node = 0;  // the nearest memory node's number
  };
  std::vector<Node> nodes;  // by number
  std::vector<Core> cores;  // in hwloc's order, which keeps the cores of a socket together
  std::vector<Card> cards;
};

/// Returns the number of memory nodes by the kernel's own files, without hwloc; 1 where they cannot be read.
[[nodiscard]] int count_memory_nodes();

/// Returns this machine. Throws Error(unsupported) where hwloc is not there, or gradwire was built without it.
[[nodiscard]] Topology read_topology();
/// Returns a machine that hwloc makes up ("package:2 numanode:1 core:4 pu:1"), or reads from XML as `lstopo --of xml`
/// writes. Throws Error(invalid_argument) where hwloc refuses the text.
[[nodiscard]] Topology synthetic_topology(const std::string& description);
[[nodiscard]] Topology topology_from_xml(const std::string& xml);

/// Returns a drawing for people: a line for each node, with its cores and cards. `processors`: those that a process may
/// use, marked; empty: none is marked.
[[nodiscard]] std::string draw(const Topology& topology, const Processors& processors = {});

}  // namespace gradwire::memory

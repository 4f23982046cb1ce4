// The ranks over which the rows of tables are spread.
#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/processes.hpp"

namespace gradwire::session {

/// The processes that hold rows, ascending, and the node of each (Transport::nodes). The rank of a process is its place
/// in `members`.
struct TableWorld {
  std::vector<Processes::Id> members;
  std::vector<std::uint32_t> nodes;
  friend bool operator==(const TableWorld&, const TableWorld&) = default;
};

}  // namespace gradwire::session

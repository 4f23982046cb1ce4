// The ranks over which the rows of tables lie.
#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/processes.hpp"

namespace gradwire::session {

/// Who holds rows: processes, ascending, and the node of each (Transport::nodes). The place of each is its rank.
struct TableWorld {
  std::vector<Processes::Id> members;
  std::vector<std::uint32_t> nodes;
  friend bool operator==(const TableWorld&, const TableWorld&) = default;
};

}  // namespace gradwire::session

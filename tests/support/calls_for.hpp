// Counts the calls of a drop-in that passed for one reason.
#pragma once

#include <cstdint>

#include "drop_in/ledger.hpp"

namespace gradwire::test {

/// `none` counts the calls that were compressed.
inline std::uint64_t calls_for(const drop_in::Ledger& ledger, drop_in::Reason reason) {
  std::uint64_t calls = 0;
  for (const auto& [what, totals] : ledger.classes()) {
    calls += what.reason == reason ? totals.calls : 0;
  }
  return calls;
}

}  // namespace gradwire::test

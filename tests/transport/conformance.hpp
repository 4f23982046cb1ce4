// Tests the contract of every transport with scenarios that name none: each runs on every rank of a world, whose ranks
// are threads or processes. A new transport is tested once it is added to a list of makers.
#pragma once

#include <span>
#include <string>

#include "gradwire/transport.hpp"

namespace gradwire::test {

struct Scenario {
  const char* name;
  void (*run)(Transport& transport);
};

[[nodiscard]] std::span<const Scenario> transport_scenarios();

}  // namespace gradwire::test

// What every transport must do, as scenarios that name none: each runs on every rank of a world, be it a thread or a
// process. A new transport is covered by being added to a list of makers.
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

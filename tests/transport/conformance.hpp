// The contract of every transport, as scenarios that name none: each runs on every rank of a world, whose ranks are
// threads or processes. Adding a new transport to a list of makers tests it.
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

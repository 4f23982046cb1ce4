// Runs the conformance scenarios over every transport within one process, with a thread for each rank.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <tuple>
#include <utility>

#include "gradwire/emulation.hpp"
#include "tests/support/faulty_transport.hpp"
#include "tests/support/ranks.hpp"
#include "tests/transport/conformance.hpp"
#include "tests/transport/tcp_world.hpp"

namespace gradwire::test {
namespace {

using Decorate = std::shared_ptr<Transport> (*)(std::shared_ptr<Transport>);
using World = std::vector<std::shared_ptr<Transport>> (*)(int world_size);
struct Maker {
  const char* name;
  Decorate decorate;
  World world = [](int world_size) { return make_inproc_world(world_size); };
};

using Endpoint = std::shared_ptr<Transport>;
constexpr Maker kMakers[] = {
    {"inproc", [](Endpoint inner) { return inner; }},
    {"throttled", [](Endpoint inner) { return make_throttled(std::move(inner), Link::parse("10Gbit/s,20us")); }},
    {"throttled_unlimited", [](Endpoint inner) { return make_throttled(std::move(inner), {}); }},
    {"faulty_without_faults", [](Endpoint inner) { return transport::make_faulty(std::move(inner), {}); }},
    {"throttled_faulty",
     [](Endpoint inner) {
       return make_throttled(transport::make_faulty(std::move(inner), {}), Link::parse("40Gbit/s"));
     }},
    {"tcp", [](Endpoint inner) { return inner; }, &make_tcp_world},
};

class Conformance : public ::testing::TestWithParam<std::tuple<Maker, Scenario, int>> {};

TEST_P(Conformance, Holds) {
  const auto& [maker, scenario, world_size] = GetParam();
  auto world = maker.world(world_size);
  for (Endpoint& endpoint : world) {
    endpoint = maker.decorate(endpoint);
  }
  run_ranks(std::move(world), [run = scenario.run](const Endpoint& endpoint) { run(*endpoint); });
}

INSTANTIATE_TEST_SUITE_P(Transports, Conformance,
                         ::testing::Combine(::testing::ValuesIn(kMakers),
                                            ::testing::ValuesIn(transport_scenarios().begin(),
                                                                transport_scenarios().end()),
                                            ::testing::Values(1, 2, 3, 4)),
                         [](const auto& parameter) {
                           return std::string(std::get<0>(parameter.param).name) + "_" +
                                  std::get<1>(parameter.param).name + "_" +
                                  std::to_string(std::get<2>(parameter.param));
                         });

}  // namespace
}  // namespace gradwire::test

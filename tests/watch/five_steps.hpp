// A small job for tests of what jobs write: a few steps of one tensor.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "gradwire/session.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::watch {

/// Makes five steps of 100,000 elements by int8 on ranks that are threads. Returns the statistics of each rank.
inline std::vector<SessionStatistics> run_five_steps(int ranks) {
  std::vector<SessionStatistics> counted(static_cast<std::size_t>(ranks));
  gradwire::test::run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values(100'000, 1.0F);
    Session session(transport, Policy::uniform("int8"));
    const TensorId id = session.add("values", {values.data(), values.size(), DType::f32});
    for (int step = 0; step < 5; ++step) {
      session.ready(id);
      session.finish();
    }
    counted[static_cast<std::size_t>(transport->rank())] = session.statistics();
  });
  return counted;
}

}  // namespace gradwire::watch

// Defines a session that trains a few gradients, for tests of saved states.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model.hpp"

namespace gradwire::test {

inline const std::string kResidualDefaults = R"(
[defaults]
codec = "topk(2%)+int8"
small = "off"
)";
inline const std::string kResidualRules = R"(
[[rule]]
match = "layer*"
codec = "int2"
[bucket]
bytes = "128KiB"
)";
inline const std::string kResidualPolicy = kResidualDefaults + kResidualRules;

inline void run_steps(Session& session, std::vector<Gradient>& gradients, std::uint64_t from, std::uint64_t until) {
  for (std::uint64_t step = from; step < until; ++step) {
    fill(gradients, session.rank(), step);
    for (const Gradient& gradient : gradients) {
      session.ready(gradient.id);
    }
    session.finish();
  }
}

struct Trainer {
  std::vector<Gradient> gradients = make_gradients();
  Session session;

  explicit Trainer(const std::shared_ptr<Transport>& transport, const std::string& policy = kResidualPolicy)
      : session(transport, Policy::parse(policy)) {
    add_all(session, gradients);
  }
};

}  // namespace gradwire::test

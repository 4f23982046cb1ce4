// Sessions that choose codecs, step by step: what a trial times, when ranks compare, and how each coming step travels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "model.hpp"
#include "session/auto/auto_codec.hpp"
#include "session/checkpoint/state_file.hpp"
#include "session/host/bucket_runner.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

constexpr std::uint64_t kLate = 50'000;  // a step

Policy bf16_or_dense(const char* more = "") {
  return Policy::parse(
      std::string("[defaults]\ncodec = \"auto\"\nallow = [\"bf16\"]\nsmall = \"off\"\n"
                  "[link]\nbandwidth = \"1Gbit/s\"\nlatency = \"50us\"\n") +
      more);
}

// Alone compares ranks then, for the choice of codecs.
class AutoSteps : public ::testing::Test {
 protected:
  AutoSteps() { ::setenv("GRADWIRE_SLOW", "off", 1); }
  ~AutoSteps() override { ::unsetenv("GRADWIRE_SLOW"); }
};

std::string state_of_step(Session& session, std::uint64_t step) {
  std::stringstream saved;
  session.save(saved);
  session::SavedState state = session::read_state(saved, "save");
  state.step = step;
  std::stringstream changed;
  session::write_state(state, changed);
  return changed.str();
}

void make_step(Session& session, const std::vector<Gradient>& gradients) {
  for (const Gradient& gradient : gradients) {
    session.ready(gradient.id);
  }
  session.finish();
}

// Mutation tried: restore() does not tell the choice of codecs.
TEST_F(AutoSteps, ALoadedStepIsTheFirstOneAlsoAfterReserve) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, bf16_or_dense());
    add_all(session, gradients);
    session.reserve();
    std::stringstream late(state_of_step(session, kLate));
    session.load(late);
    for (int i = 0; i < 4; ++i) {
      make_step(session, gradients);
    }
    EXPECT_EQ(session.step(), kLate + 4);
    EXPECT_EQ(session.statistics().comparisons, 0U) << "too few steps were seen";
    EXPECT_EQ(session.statistics().switches.at(0).step, kLate);
    make_step(session, gradients);
    make_step(session, gradients);
    EXPECT_EQ(session.statistics().comparisons, 1U);
  });
}

}  // namespace
}  // namespace gradwire::test

// Tests where a job may state its key, and that parts which would send in clear text refuse one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "drop_in/configuration.hpp"
#include "gradwire/communicator.hpp"
#include "gradwire/processes.hpp"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "key_in_environment.hpp"
#include "plan/call_plan.hpp"
#include "recorded_traffic.hpp"
#include "session/runner/runner.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using Endpoint = std::shared_ptr<Transport>;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(KeySetting, TheKeyMayStandInThePolicy) {
  const ScratchFolder folder;
  security::write_key_file(folder.path() / "job.key", published_key());
  Policy policy = Policy::parse("[security]\nkey = \"file:" + folder.file("job.key") + "\"\n");
  const auto traffic = std::make_shared<Traffic>();
  run_ranks(recorded_world(2, traffic), [&](const Endpoint& transport) {
    std::vector<float> values = marked(transport->rank(), 5000);
    Session session(transport, policy);
    const TensorId id = session.add("tensor", view(values.data(), values.size()));
    session.ready(id);
    session.finish();
  });
  std::size_t frames = 0;
  for (const RecordedMessage& message : traffic->messages()) {
    if (std::memcmp(message.bytes.data(), "GRW1", 4) == 0) {
      EXPECT_EQ(message.bytes[4], std::byte{3});
      ++frames;
    }
  }
  EXPECT_GT(frames, 0U);
}

TEST(KeySetting, NothingWithoutAKeyIsMadeBesideASessionWhosePolicyHasOne) {
  const ScratchFolder folder;
  security::write_key_file(folder.path() / "job.key", published_key());
  const Policy policy = Policy::parse("[security]\nkey = \"file:" + folder.file("job.key") + "\"\n");
  run_ranks(make_inproc_world(2), [&](const Endpoint& transport) {
    const Session session(transport, policy);
    const auto refused = [](auto make) {
      const Error error = error_of(make);
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("the key of its policy"), HasSubstr("GRADWIRE_KEY=file:PATH")));
    };
    refused([&] { Communicator{transport}; });
    refused([&] { Table(transport, {.name = "words", .rows = 100, .width = 8}); });
    refused([&] { Session(transport, Policy()); });
  });
  EXPECT_NO_THROW(Communicator{make_inproc_world(2)[0]}) << "the sessions are gone";
}

// Rank 0 alone makes a communicator, and drops it unused.
TEST(KeySetting, AnUnusedCommunicatorLeavesNoGreeting) {
  const KeyInEnvironment key;
  run_ranks(make_inproc_world(2), [](const Endpoint& transport) {
    if (transport->rank() == 0) {
      const Communicator unused(transport);
    }
    std::vector<float> values = marked(transport->rank(), 5000);
    Session session(transport, Policy());
    const TensorId id = session.add("tensor", view(values.data(), values.size()));
    session.ready(id);
    session.finish();
  });
}

TEST(KeySetting, CallsWithoutASessionRefuseAPolicyWithAKey) {
  Policy policy;
  policy.security.key = "file:/home/me/job.key";
  EXPECT_THAT(error_of([&] { plan::CallPlanner planner(policy); }).what(),
              AllOf(HasSubstr("[security] needs a session"), HasSubstr("clear text")));
}

TEST(KeySetting, PartsThatCannotSealRefuseAKey) {
  const KeyInEnvironment key;
  const Error error = error_of([] { Session(make_inproc_processes(2)[0], Policy()); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("GRADWIRE_KEY names a key"), HasSubstr("over gradwire::Processes"),
                                  HasSubstr("clear text")));
  const Error device = error_of(
      [] { static_cast<void>(session::make_session(std::unique_ptr<session::Runner>(), Policy(), SessionOptions{})); });
  EXPECT_EQ(device.code(), ErrorCode::unsupported);
  EXPECT_THAT(device.what(), AllOf(HasSubstr("device memory"), HasSubstr("host memory")));
  EXPECT_THAT(drop_in::Configuration::read(true).disabled,
              AllOf(HasSubstr("GRADWIRE_KEY names a key"), HasSubstr("a drop-in sends in clear text")));
  std::filesystem::permissions(key.file(), std::filesystem::perms::all);
  EXPECT_THAT(error_of([] { Communicator(make_inproc_world(2)[0]); }).what(), HasSubstr("chmod 600"));
}

}  // namespace
}  // namespace gradwire::test

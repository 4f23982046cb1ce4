// Runs sessions over gradwire's own connections in a job with a key: they are not sealed again, their results are those
// without a key, and nothing of a tensor is seen on the network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/communicator.hpp"
#include "gradwire/session.hpp"
#include "key_in_environment.hpp"
#include "middle.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "transport/sealed_transport.hpp"
#include "transport/tcp/tcp_processes.hpp"

namespace gradwire::test {
namespace {

using Values = std::vector<float>;

std::vector<Values> train(Session& session, int rank) {
  std::vector<Values> tensors{marked(rank, 9000, 1), marked(rank, 40, 2)};
  std::vector<TensorId> ids;
  for (Values& tensor : tensors) {
    ids.push_back(session.add("tensor " + std::to_string(ids.size()), view(tensor.data(), tensor.size())));
  }
  for (int step = 0; step < 3; ++step) {
    for (const TensorId id : ids) {
      session.ready(id);
    }
    session.finish();
  }
  Values shared = marked(rank, 2000, 3);
  const View whole = view(shared.data(), shared.size());
  session.broadcast({&whole, 1}, 0);
  tensors.push_back(std::move(shared));
  return tensors;
}

std::vector<std::vector<Values>> results_of(Middle& middle, const std::string& codec) {
  MemoryStore store;
  std::vector<std::vector<Values>> results(2);
  run_ranks(make_tcp_world(2, middle.between(store.rendezvous())), [&](const std::shared_ptr<Transport>& endpoint) {
    Session session(endpoint, Policy::uniform(codec));
    results[static_cast<std::size_t>(endpoint->rank())] = train(session, endpoint->rank());
  });
  return results;
}

std::set<std::string> windows_of(Middle& middle) {
  std::set<std::string> windows;
  for (std::size_t i = 0; i < middle.count(); ++i) {
    const auto recorded = middle.recorded(i);
    for (const Middle::Bytes* sent : {&recorded.first, &recorded.second}) {
      for (std::size_t at = 0; at + 16 <= sent->size(); ++at) {
        windows.emplace(reinterpret_cast<const char*>(sent->data()) + at, 16);
      }
    }
  }
  return windows;
}

// Everything that is sent without the key is searched for: tensors as they are, frames, weights and plans.
TEST(SecureSession, NothingThatRanksSayIsSeen) {
  for (const std::string codec : {"exact", "int8"}) {
    Middle open;
    const auto plain = results_of(open, codec);
    const KeyInEnvironment key;
    Middle closed;
    const auto keyed = results_of(closed, codec);
    EXPECT_EQ(keyed, plain) << "frames inside TLS are those without a key";
    const std::set<std::string> seen_open = windows_of(open);
    std::size_t found_open = 0;
    std::size_t found = 0;
    const std::set<std::string> seen = windows_of(closed);
    const Values tensor = marked(0, 2000, 3);
    for (std::size_t i = 0; i + 4 <= tensor.size(); ++i) {
      const std::string window(reinterpret_cast<const char*>(tensor.data() + i), 16);
      found_open += seen_open.contains(window) ? 1 : 0;
      found += seen.contains(window) ? 1 : 0;
    }
    EXPECT_GT(found_open, 1000U) << "this test finds nothing";
    EXPECT_EQ(found, 0U);
    std::size_t shared = 0;
    for (const std::string& window : seen) {
      const std::set<char> different(window.begin(), window.end());
      shared += different.size() > 6 && seen_open.contains(window) ? 1 : 0;
    }
    EXPECT_EQ(shared, 0U) << "something that is sent without a key was sent in clear text";
  }
}

// Mutation tried: sealed_if_keyed() seals every transport.
TEST(SecureSession, TlsIsNotSealedAgain) {
  const KeyInEnvironment key;
  MemoryStore store;
  const auto world = make_tcp_world(2, store.rendezvous());
  EXPECT_EQ(transport::sealed_if_keyed(world[0]), world[0]);
}

TEST(SecureSession, RunsOverProcesses) {
  const KeyInEnvironment key;
  const ScratchFolder folder;
  MemoryStore store;
  std::vector<std::vector<Values>> results(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      auto processes = transport::make_tcp_processes(
          store.rendezvous(), {.rank = rank, .world_size = 2, .interface = "lo", .timeout = std::chrono::seconds(20)},
          {.join_file = folder.file("join")});
      EXPECT_TRUE(processes->encrypted());
      Session session(std::move(processes), Policy::uniform("int8"));
      results[static_cast<std::size_t>(rank)] = train(session, rank);
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_FALSE(results[0].empty());
}

}  // namespace
}  // namespace gradwire::test

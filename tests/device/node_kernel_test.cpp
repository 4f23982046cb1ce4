// Tests sessions that sum by one kernel inside a node, over the product's CUDA device on a runtime without a GPU: ranks
// are threads, whose kernels the emulator runs where they are launched, so those of different ranks run at once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "exchange/peers.hpp"
#include "exchange/stream/window_calls.hpp"
#include "gradwire/session.hpp"
#include "memory/cuda_windows.hpp"
#include "session/device/device_runner.hpp"
#include "session/runner/agreements.hpp"
#include "tests/device/counted_device.hpp"
#include "tests/exchange/inputs.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

constexpr int kWorld = 3;
constexpr std::size_t kCount = 9 * 4096 + 300;
constexpr int kSteps = 3;

Policy policy() {
  return Policy::parse(
      "[defaults]\ncodec = \"int8\"\nsmall = \"off\"\nalgorithm = \"two_shot\"\nerror_feedback = \"on\"\n");
}

// The results of some steps, one after the other.
std::vector<float> train(Session& session, int rank) {
  std::vector<float> gradient(kCount);
  std::vector<float> results;
  const auto id = session.add("weight", view(gradient.data(), gradient.size()));
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<double> values = gaussian(kCount, 100 * step + rank);
    std::copy(values.begin(), values.end(), gradient.begin());
    session.ready(id);
    session.finish();
    results.insert(results.end(), gradient.begin(), gradient.end());
  }
  return results;
}

exchange::TransportPeers peers_over(Transport& transport) { return {transport, std::chrono::seconds(30)}; }

std::vector<std::shared_ptr<exchange::StreamDevice>> make_devices() {
  std::vector<std::shared_ptr<exchange::StreamDevice>> devices;
  for (int rank = 0; rank < kWorld; ++rank) {
    devices.push_back(make_counted_device(rank, kWorld));
  }
  return devices;
}

TEST(NodeKernel, SessionsAreThoseOfHostMemory) {
  static_cast<void>(setenv("GRADWIRE_NODE_KERNEL", "1", 1));
  std::vector<std::vector<float>> host(kWorld);
  std::vector<std::vector<float>> devices(kWorld);
  run_ranks(kWorld, [&](const std::shared_ptr<Transport>& transport) {
    Session session(transport, policy());
    host[static_cast<std::size_t>(transport->rank())] = train(session, transport->rank());
  });
  const auto made = make_devices();
  run_ranks(kWorld, [&](const std::shared_ptr<Transport>& transport) {
    const auto at = static_cast<std::size_t>(transport->rank());
    Session session = session::make_session(
        std::make_unique<session::DeviceRunner>(
            made[at], std::make_unique<exchange::TransportPeers>(*transport, std::chrono::seconds(30)),
            SessionOptions{}),
        policy(), {});
    devices[at] = train(session, transport->rank());
    EXPECT_NE(made[at]->windows(), nullptr);
  });
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    EXPECT_TRUE(devices[rank] == host[rank]) << "rank " << rank;
  }
  static_cast<void>(setenv("GRADWIRE_NODE_KERNEL", "0", 1));
}

TEST(NodeKernel, RanksMustAskForItAlike) {
  run_ranks(kWorld, [&](const std::shared_ptr<Transport>& transport) {
    exchange::TransportPeers peers = peers_over(*transport);
    const std::string mine = transport->rank() == 2 ? "" : "GRADWIRE_NODE_KERNEL: 1\n";
    try {
      session::agree_on_plan(peers, "a plan\n" + mine, "");
      ADD_FAILURE() << "rank " << transport->rank();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_NE(std::string(error.what()).find("GRADWIRE_NODE_KERNEL"), std::string::npos) << error.what();
    }
  });
}

TEST(NodeKernel, WindowsThatSomeRankCannotAllocateAreThoseOfNobody) {
  run_ranks(kWorld, [&](const std::shared_ptr<Transport>& transport) {
    exchange::TransportPeers peers = peers_over(*transport);
    const auto all_gather = [&](const std::string& mine) { return peers.all_gather(mine, "a test"); };
    std::string why;
    const int rank = transport->rank();
    const std::size_t bytes = rank == 1 ? std::size_t{1} << 60 : 4096;
    EXPECT_EQ(memory::CudaPeerWindows::open(0, bytes, rank, all_gather, why), nullptr);
    EXPECT_NE(why.find(rank == 1 ? "allocating a window" : "rank 1 has no window"), std::string::npos) << why;
    why.clear();
    const auto windows = memory::CudaPeerWindows::open(0, 4096, rank, all_gather, why);
    ASSERT_NE(windows, nullptr) << why;
    const std::byte* own = windows->window(rank);
    std::string text(reinterpret_cast<const char*>(&own), sizeof own);
    const std::vector<std::string> owns = all_gather(text);
    for (int other = 0; other < kWorld; ++other) {
      const std::byte* seen = windows->window(other);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(&seen), sizeof seen), owns[static_cast<std::size_t>(other)]);
    }
    static_cast<void>(all_gather("done"));
  });
}

}  // namespace
}  // namespace gradwire::test

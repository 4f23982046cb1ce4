// Runs the conformance scenarios over transports of MPI processes, and tests splitting, tags and bad communicators,
// which only MPI has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <tuple>

#include "gradwire/emulation.hpp"
#include "gradwire/mpi.hpp"
#include "tests/support/ranks.hpp"
#include "tests/transport/conformance.hpp"
#include "tests/transport/exchange.hpp"
#include "tests/transport/relay.hpp"
#include "transport/mpi_communicators.hpp"
#include "transport/mpi_device.hpp"
#include "transport/mpi_remains.hpp"
#include "transport/mpi_transport.hpp"

namespace gradwire::test {
namespace {

constexpr std::chrono::seconds kLong{60};

using ::testing::HasSubstr;

struct Maker {
  const char* name;
  std::shared_ptr<Transport> (*make)();
};

constexpr Maker kMakers[] = {
    {"mpi", [] { return mpi::make_transport(MPI_COMM_WORLD); }},
    // A limit of 2048 splits most messages of the scenarios. 2^24 - 1 is the least bound that needs no folding.
    {"split",
     [] { return transport::make_mpi(MPI_COMM_WORLD, {.split_bytes = 2048, .tag_upper_bound = (1 << 24) - 1}); }},
    // This is the least bound that MPI allows: tags are folded.
    {"folded", [] { return transport::make_mpi(MPI_COMM_WORLD, {.split_bytes = 2048, .tag_upper_bound = 32767}); }},
    {"device_memory", [] { return transport::make_mpi(MPI_COMM_WORLD, {.split_bytes = 5000, .device_memory = true}); }},
    {"throttled", [] { return make_emulated(mpi::make_transport(MPI_COMM_WORLD), "10Gbit/s,20us"); }},
};

class MpiConformance : public ::testing::TestWithParam<std::tuple<Maker, Scenario>> {};

TEST_P(MpiConformance, Holds) {
  const auto& [maker, scenario] = GetParam();
  const Watchdog watchdog(scenario.name, std::chrono::seconds(90));
  {
    const auto transport = maker.make();
    try {
      scenario.run(*transport);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
      transport->abort(Error(ErrorCode::internal, "scenario failed"));
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

INSTANTIATE_TEST_SUITE_P(Transports, MpiConformance,
                         ::testing::Combine(::testing::ValuesIn(kMakers),
                                            ::testing::ValuesIn(transport_scenarios().begin(),
                                                                transport_scenarios().end())),
                         [](const auto& parameter) {
                           return std::string(std::get<0>(parameter.param).name) + "_" +
                                  std::get<1>(parameter.param).name;
                         });

// Tests messages as over a CUDA-aware MPI, with memory that the host can also read. A rank may still use host memory.
TEST(MpiTransport, RelaysWhatStreamsSend) {
  const Watchdog watchdog("RelaysWhatStreamsSend");
  using Path = transport::RelayedMessages::Path;
  for (const int directs : {0, 1, 4}) {
    const auto mpi = transport::make_mpi(MPI_COMM_WORLD, {.split_bytes = 1 << 20, .device_memory = directs > 0});
    auto port = std::make_unique<ThreadPort>();
    transport::RelayedMessages messages(mpi, std::move(port), mpi->rank() < directs ? Path::direct : Path::staged,
                                        std::chrono::seconds(60));
    ThreadStream stream;
    EXPECT_EQ(exchange_over_relay(messages, stream, 14), "");
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

// Messages look different if MPI takes device memory, so all ranks must say so.
TEST(MpiTransport, RanksAgreeOnWhoTakesDeviceMemory) {
  int rank = 0;
  int world_size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  EXPECT_TRUE(transport::all_support_device_memory(MPI_COMM_WORLD, true, kLong));
  EXPECT_EQ(transport::all_support_device_memory(MPI_COMM_WORLD, rank > 0, kLong), false);
  const bool here =
      transport::all_support_device_memory(MPI_COMM_WORLD, transport::mpi_supports_device_memory(), kLong);
  EXPECT_EQ(mpi::make_transport(MPI_COMM_WORLD)->capabilities().device_memory, here);
}

TEST(MpiTransport, TakesAnyIntracommunicator) {
  const Watchdog watchdog("TakesAnyIntracommunicator");
  int rank = 0;
  int world_size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  MPI_Comm reversed = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  const auto transport = mpi::make_transport(reversed);
  MPI_Comm_free(&reversed);  // the transport has its own copy
  EXPECT_EQ(transport->rank(), world_size - 1 - rank);
  EXPECT_EQ(transport->world_size(), world_size);
  EXPECT_EQ(transport->name(), "mpi");
  barrier(*transport, 0);
}

TEST(MpiTransport, MessagesOfTwoOnOneCommunicatorDoNotMatch) {
  const Watchdog watchdog("MessagesOfTwoOnOneCommunicatorDoNotMatch");
  const auto one = mpi::make_transport(MPI_COMM_WORLD);
  const auto two = mpi::make_transport(MPI_COMM_WORLD);
  const int next = (one->rank() + 1) % one->world_size();
  const int previous = (one->rank() + one->world_size() - 1) % one->world_size();
  Batch first(*one);
  Batch second(*two);
  first.receive(previous, 1, pattern(previous, one->rank(), 1, 5000));
  second.receive(previous, 1, pattern(previous, one->rank(), 2, 5000));
  second.send(next, 1, pattern(one->rank(), next, 2, 5000));
  first.send(next, 1, pattern(one->rank(), next, 1, 5000));
  first.wait();
  second.wait();
}

template <class Action>
void expect_invalid(Action action, const std::string& text) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST(MpiTransport, RejectsWhatIsNoIntracommunicator) {
  expect_invalid([] { (void)mpi::make_transport(MPI_COMM_NULL); }, "MPI_COMM_NULL");
  int rank = 0;
  int world_size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  if (world_size > 1) {
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm inter = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : 1, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 5, &inter);
    expect_invalid([&] { (void)mpi::make_transport(inter); }, "MPI_Intercomm_merge");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
  }
}

TEST(MpiTransport, DestructionGivesUpWhatIsPending) {
  const Watchdog watchdog("DestructionGivesUpWhatIsPending");
  Operation operation;
  Bytes data(1'000'000);
  {
    const auto transport = mpi::make_transport(MPI_COMM_WORLD);
    transport->post_receive(operation, (transport->rank() + 1) % transport->world_size(), 0, data);
    transport->progress(std::chrono::microseconds(0));
    EXPECT_TRUE(operation.pending());
  }
  // All ranks have come here: none waited for a message that never came, and nothing was written.
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_FALSE(operation.done());
  EXPECT_EQ(data, Bytes(1'000'000));
}

// The test needs 2 x (2 GiB + 5) of memory on each of two ranks, so it runs only on request.
TEST(MpiTransport, BeyondTwoToThe31) {
  if (std::getenv("GRADWIRE_TEST_BIG") == nullptr) {
    GTEST_SKIP() << "set GRADWIRE_TEST_BIG=1 to run; needs 5 GiB of memory";
  }
  const Watchdog watchdog("BeyondTwoToThe31", std::chrono::minutes(5));
  const auto transport = mpi::make_transport(MPI_COMM_WORLD);
  const std::size_t bytes = (1ULL << 31U) + 5;
  Bytes data(transport->rank() < 2 ? bytes : 0);
  Operation operation;
  if (transport->rank() == 0) {
    for (std::size_t i = 0; i < bytes; i += 4099) {
      data[i] = static_cast<std::byte>(i / 4099);
    }
    data.back() = std::byte{42};
    transport->post_send(operation, 1, 0, data);
  } else if (transport->rank() == 1) {
    transport->post_receive(operation, 0, 0, data);
  }
  while (operation.pending()) {
    transport->progress(std::chrono::seconds(1));
  }
  if (transport->rank() == 1) {
    for (std::size_t i = 0; i < bytes - 1; i += 4099) {
      ASSERT_EQ(data[i], static_cast<std::byte>(i / 4099)) << i;
    }
    EXPECT_EQ(data.back(), std::byte{42});
    EXPECT_EQ(transport->counters().bytes_received, bytes);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// Several messages share a tag, as hierarchical sends them inside a node: the rest of the first is never taken for the
// beginning of the second. Mutation tried: both kinds share folded tags.
TEST(MpiTransport, FoldedTagsKeepTheKindsApart) {
  const Watchdog watchdog("FoldedTagsKeepTheKindsApart");
  const auto transport = transport::make_mpi(MPI_COMM_WORLD, {.tag_upper_bound = 32767});
  const int next = (transport->rank() + 1) % transport->world_size();
  const int before = (transport->rank() + transport->world_size() - 1) % transport->world_size();
  constexpr int kMessages = 4;
  std::vector<Bytes> sent;
  std::vector<Bytes> received;
  std::vector<Operation> operations(2 * kMessages);
  for (int i = 0; i < kMessages; ++i) {
    sent.emplace_back(5000 + static_cast<std::size_t>(i), static_cast<std::byte>(i));
    received.emplace_back(sent.back().size());
  }
  for (std::size_t i = 0; i < kMessages; ++i) {
    transport->post_receive(operations[i], before, 7, received[i]);
    transport->post_send(operations[kMessages + i], next, 7, sent[i]);
  }
  while (std::any_of(operations.begin(), operations.end(), [](const Operation& one) { return one.pending(); })) {
    transport->progress(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(received == sent);
  MPI_Barrier(MPI_COMM_WORLD);
}

// A communicator that was made from a group, as drop-ins make theirs, has no copy of MPI's attributes. Mutation tried:
// it is asked instead of the world.
TEST(MpiTransport, AGroupsCommunicatorHasAllTags) {
  void* bound = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &group);
  MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &comm);
  transport::MpiCommunicators communicators(comm, 0, kLong);
  ASSERT_EQ(found, 1);
  EXPECT_EQ(communicators.has_spare_tag(), *static_cast<int*>(bound) >= 1 << 29);
  communicators.free();
  MPI_Comm_free(&comm);
  MPI_Group_free(&group);
}

// Each transport leaves messages of all kinds in flight. Mutation tried: communicators of aborted transports are never
// freed: each costs 8 KiB in Open MPI, until no more can be made.
TEST(MpiTransport, AbortedOnesLeaveNothingBehindForGood) {
  constexpr int kAborted = 300;
  int high = 0;
  void* bound = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
  if (found == 0 || *static_cast<int*>(bound) < transport::kLastMessageTag) {
    GTEST_SKIP() << "this MPI has too few tags";
  }
  Bytes sent(300'000);
  Bytes received(300'000);
  for (int i = 0; i < kAborted; ++i) {
    const auto transport = mpi::make_transport(MPI_COMM_WORLD);
    high = std::max(high, static_cast<int>(transport::kept_communicators()));
    const int next = (transport->rank() + 1) % transport->world_size();
    const int before = (transport->rank() + transport->world_size() - 1) % transport->world_size();
    Operation small;
    Operation large;
    Operation awaited;
    try {
      transport->post_send(small, next, 3, std::span(sent).first(100));
      transport->post_send(large, next, 4, sent);
      transport->post_receive(awaited, before, 5 + static_cast<Tag>(i % 2), received);
      transport->progress(std::chrono::microseconds(0));
    } catch (const Error&) {  // another rank was quicker
    }
    if (i % transport->world_size() == transport->rank()) {
      transport->abort(Error(ErrorCode::aborted, "on purpose", ErrorCause::world));
    } else {
      try {
        while (true) {
          transport->progress(std::chrono::milliseconds(1));
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::aborted);
      }
    }
    for (Operation* operation : {&small, &large, &awaited}) {
      transport->cancel(*operation);  // the buffers outlive the transport
    }
  }
  EXPECT_LE(high, 1) << "earlier communicators are still held";
  MPI_Barrier(MPI_COMM_WORLD);
}

// Rank 0 waits for the last rank, which does something else; the others ask.
TEST(MpiTransport, RanksSayWhetherTheyAreThereAndWhomTheyWaitFor) {
  const auto transport = mpi::make_transport(MPI_COMM_WORLD);
  const int world = transport->world_size();
  const int last = world - 1;
  if (world < 3) {
    GTEST_SKIP() << "three ranks or more";
  }
  std::byte nothing{};
  Operation receive;
  Operation go;
  if (transport->rank() == 0) {
    transport->post_receive(receive, last, 5, {&nothing, 1});
    while (!receive.done()) {
      transport->progress(std::chrono::milliseconds(1));
    }
  } else if (transport->rank() == 1) {
    for (int round = 0; round < 2; ++round) {
      const std::vector<PeerState> peers = transport->ask(std::chrono::milliseconds(1000));
      ASSERT_EQ(peers.size(), static_cast<std::size_t>(world));
      EXPECT_TRUE(peers[0].answers);
      EXPECT_EQ(peers[0].waits_for, std::vector<int>{last});
      EXPECT_TRUE(peers[1].answers);
      EXPECT_FALSE(peers[static_cast<std::size_t>(last)].answers);
    }
    transport->post_send(go, last, 6, {&nothing, 1});
    while (!go.done()) {
      transport->progress(std::chrono::milliseconds(1));
    }
  } else if (transport->rank() == last) {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    transport->post_receive(go, 1, 6, {&nothing, 1});
    while (!go.done()) {
      transport->progress(std::chrono::milliseconds(1));
    }
    transport->post_send(receive, 0, 5, {&nothing, 1});
    while (!receive.done()) {
      transport->progress(std::chrono::milliseconds(1));
    }
  }
}

}  // namespace
}  // namespace gradwire::test

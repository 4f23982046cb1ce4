// Tests that want of device memory ends no communicator: whichever rank lacks it, and wherever it is needed, all ranks
// make the same calls in the same way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "drop_in/absent_device.hpp"
#include "tests/drop_in/device_harness.hpp"

namespace gradwire::drop_in {
namespace {

using test::run_ranks;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kMemoryCount = 20000;

// Notes what each rank did, call by call.
class Log {
 public:
  void add(int rank, const std::string& what) {
    const std::lock_guard lock(mutex_);
    by_rank_[rank] += what;
  }
  // The calls of all ranks, given that these are equal.
  std::string equal() {
    for (const auto& [rank, calls] : by_rank_) {
      EXPECT_EQ(calls, by_rank_.begin()->second) << "rank " << rank;
    }
    return by_rank_.begin()->second;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::string> by_rank_;
};

struct MemoryRank {
  MemoryRank(const Configuration& configuration, const std::shared_ptr<Transport>& transport)
      : rank(transport->rank()),
        place(configuration, ledger, transport, 1 + static_cast<std::uint64_t>(rank)),
        device(place.link->host) {
    nccl.links.push_back(place.link);
    reach_agreement(std::vector{place.reducer}, nccl);
    nccl.log.clear();
  }

  // Makes the calls as a group. Returns "c" for each that was compressed, "-" for each that passed, "!" for an error.
  // What int8 compressed must be the sum; other codecs here spread it over several steps.
  std::string reduce(const std::vector<CallOf>& calls) {
    nccl.log.clear();
    std::vector<std::vector<float>> values;
    std::vector<DeviceCall> made;
    for (const CallOf& call : calls) {
      const auto ranks = static_cast<std::uint64_t>(place.world);
      const std::uint64_t all = call.function == Function::nccl_reduce_scatter ? ranks * call.count : call.count;
      values.emplace_back(all, static_cast<float>(rank + 1));
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
      CallOf call = calls[i];
      call.label = std::to_string(i);
      made.push_back(call_of(place, call, values[i].data(), values[i].data() + segment(call), nccl));
    }
    const int code = issue(made, nccl);
    device.synchronize();
    std::string seen;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const bool passed = std::find(nccl.log.begin(), nccl.log.end(), std::to_string(i)) != nccl.log.end();
      seen += code != 0 ? "!" : passed ? "-" : "c";
      const float got = values[i][segment(calls[i]) + 7];
      const float sum = static_cast<float>(place.world * (place.world + 1)) / 2;
      EXPECT_TRUE(code != 0 || passed || !sums || std::abs(got - sum) < 0.02F * sum) << got << " in call " << i;
      EXPECT_TRUE(std::isfinite(got));
    }
    return seen;
  }
  [[nodiscard]] std::uint64_t segment(const CallOf& call) const {
    return call.function == Function::nccl_reduce_scatter ? static_cast<std::uint64_t>(rank) * call.count : 0;
  }
  [[nodiscard]] std::uint64_t passed(Reason reason) const { return test::calls_for(ledger, reason); }

  int rank;
  bool sums = false;  // results are compared with the sum
  Ledger ledger;
  HostLibrary nccl;
  Place place;
  test::HostDevice& device;
};

// The job makes these steps: single calls and groups, of several sizes.
const std::vector<std::vector<CallOf>> kSteps = {
    {{.count = kMemoryCount}},
    {{.count = 5 * kMemoryCount, .function = Function::nccl_reduce_scatter}},
    {{.count = kMemoryCount + 8}, {.count = 3 * kMemoryCount}, {.count = 5 * kMemoryCount}},
    {{.count = 7 * kMemoryCount}},
};

// One rank's device has so much memory left, for each amount up to one that suffices: whatever is refused, and where,
// all ranks do the same, and no call fails. Mutations tried, each fails here: a rank does not ask the others; a group
// is not asked for.
TEST(DeviceMemory, WhateverOneRankLacksNoCallFails) {
  for (const std::string codec : {"int8", "int4", "topk(10%)+int8"}) {
    const Configuration configuration = configuration_of("[defaults]\ncodec = \"" + codec + "\"\n");
    std::size_t compressed = 0;
    bool enough = false;
    for (std::size_t left = 0; !enough; left += 500'000) {
      SCOPED_TRACE(codec + ", " + std::to_string(left) + " bytes left");
      Log log;
      run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
        MemoryRank rank(configuration, transport);
        rank.sums = codec == "int8";
        const std::uint64_t held = rank.device.arena().footprint().held_bytes;
        if (rank.rank == 1) {
          rank.device.set_memory_left(left);
        }
        for (int step = 0; step < 8; ++step) {
          rank.place.reducer->note_other_call();  // the loss
          for (const std::vector<CallOf>& calls : kSteps) {
            log.add(rank.rank, rank.reduce(calls));
          }
        }
        EXPECT_THAT(rank.place.reducer->failure(), IsEmpty());
        EXPECT_EQ(rank.passed(Reason::failed), 0U);
        if (left == 0) {
          EXPECT_EQ(rank.device.arena().footprint().held_bytes, held) << "ranks give back what is of no use";
        }
        if (rank.rank == 0 && rank.passed(Reason::no_memory) > 0) {
          EXPECT_THAT(rank.nccl.said, ::testing::Contains(HasSubstr("no device memory for the messages of")));
        }
      });
      const std::string calls = log.equal();
      EXPECT_EQ(calls.find('!'), std::string::npos);
      const auto now = static_cast<std::size_t>(std::count(calls.begin(), calls.end(), 'c'));
      EXPECT_EQ(left == 0 ? now : 0, 0U);
      compressed = std::max(compressed, now);
      enough = left > 8'000'000;
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
    EXPECT_GT(compressed, 30U);
  }
}

// A rank, or each of them, has no memory for what calls need beside their messages: for a device's streams, for the
// step, or for the exchange of words. It answers the others, and all pass, with a reason.
TEST(DeviceMemory, ARankThatHasNotEvenTheLeastMemoryLetsAllPass) {
  enum class Lacks : std::uint8_t { device, step, words };
  const Configuration configuration = configuration_of("");
  for (const Lacks lacks : {Lacks::device, Lacks::step, Lacks::words}) {
    for (const bool all : {false, true}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(lacks)) + (all ? ", all ranks" : ", rank 1"));
      run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
        const int rank = transport->rank();
        const auto process = 1 + static_cast<std::uint64_t>(rank);
        const bool short_of_memory = all || rank == 1;
        Ledger ledger;
        HostLibrary nccl;
        Place place(configuration, ledger, transport, process);
        const std::shared_ptr<DeviceReducer> first = place.reducer;
        if (short_of_memory && lacks == Lacks::device) {
          place.reducer = std::make_shared<DeviceReducer>(
              configuration, ledger,
              make_absent_link(rank, place.world, std::shared_ptr<RankGather>(first, &place.link->ranks),
                               Error(ErrorCode::out_of_memory, "no memory for streams")),
              process);
        } else if (short_of_memory && lacks == Lacks::step) {
          place.link->host.set_memory_left(0);
        }
        place.link->port.refuses = short_of_memory && lacks == Lacks::words;
        reach_agreement(std::vector{place.reducer}, nccl);
        std::vector<float> values(kMemoryCount);
        for (int time = 0; time < 2; ++time) {
          EXPECT_EQ(
              issue(std::vector{call_of(place, {.count = kMemoryCount}, values.data(), values.data(), nccl)}, nccl), 0);
        }
        EXPECT_EQ(test::calls_for(ledger, Reason::disabled), 2U);
        EXPECT_THAT(place.reducer->failure(), IsEmpty());
        EXPECT_EQ(place.reducer->disabled().empty(), !short_of_memory);
        if (rank == 0) {
          EXPECT_THAT(nccl.said, ::testing::Contains(HasSubstr("every call is passed through: disabled on rank")));
          EXPECT_THAT(nccl.said, ::testing::Contains(HasSubstr("memory")));
        }
      });
    }
  }
}

// Memory for calls depends on which residuals they add: those of ranks' own values, of owners' sums, both or none.
TEST(DeviceMemory, CallsThatAddResidualsOfOtherSitesAreAskedForApart) {
  test::HostDevice host(make_inproc_world(2)[0]);
  const exchange::CurrentDevice current(host);
  FrameMemory frames(host.arena(), 0, 2);
  std::size_t largest = 0;
  const auto bytes_of = [](const FrameMemory::Kind& kind) {
    return (std::size_t{1} << 20) * (1 + (kind.holds_local ? 1 : 0) + (kind.holds_owner ? 2 : 0));
  };
  int asked = 0;
  for (const bool local : {false, true}) {
    for (const bool owner : {false, true}) {
      const FrameMemory::Kind kind{.call = {Function::nccl_all_reduce, DType::f32, 5},
                                   .keeps = true,
                                   .holds_local = local,
                                   .holds_owner = owner};
      EXPECT_EQ(frames.known({kind}), std::nullopt);
      const auto play = [&](exchange::StreamBackend& backend) { backend.release(backend.acquire(bytes_of(kind))); };
      EXPECT_TRUE(frames.ask({kind}, play, [&](bool mine) {
        ++asked;
        return mine;
      }));
      EXPECT_EQ(frames.known({kind}), true);
      largest = std::max(largest, bytes_of(kind));
      EXPECT_GE(host.arena().footprint().held_bytes, largest);
    }
  }
  EXPECT_EQ(asked, 4);
}

// One rank keeps its factor in device memory now and then, others on the host: these are calls of one kind, for which
// all ranks have the memory that either takes. Mutations tried, each fails here: kinds differ by where this rank's
// factor lies; memory is taken for that alone.
TEST(DeviceMemory, RanksMayKeepTheFactorOfAScaledSumWhereTheyLike) {
  Configuration configuration = configuration_of("[defaults]\ncodec = \"int8\"\n");
  configuration.timeout = std::chrono::seconds(2);
  float half = 0.5F;
  Log log;
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    MemoryRank rank(configuration, transport);
    const CallOf on_host{.count = kMemoryCount, .factor = 0.5};
    const CallOf on_device{.count = kMemoryCount, .device_factor = &half};
    for (const bool group : {false, true}) {
      for (const int with_device : {-1, 1, 0}) {  // the rank whose factor lies there
        const CallOf& call = rank.rank == with_device ? on_device : on_host;
        log.add(rank.rank, rank.reduce(group ? std::vector{call, call} : std::vector{call}));
        if (with_device == -1) {
          rank.device.set_memory_left(0);
        }
      }
      rank.device.set_memory_left(~std::size_t{0});
    }
    EXPECT_THAT(rank.place.reducer->failure(), IsEmpty());
  });
  EXPECT_EQ(log.equal(), "ccccccccc");
}

// The same holds for trials of codec = "auto", for what it adopts, and for the exact call that adds residuals at last.
// Mutations tried: what an exact call takes is not asked for; a class without memory is compared again.
TEST(DeviceMemory, WhateverOneRankLacksTrialsHarmNobody) {
  for (const std::string allow : {"int8", "int4"}) {
    Configuration configuration = configuration_of("");
    configuration.planner = plan::CallPlanner(
        Policy::parse("version = 1\n[defaults]\ncodec = \"auto\"\nroles = \"all\"\nallow = [\"" + allow + "\"]\n"),
        plan::AutoFeedback::where_allowed);
    std::set<std::string> became;
    for (const std::size_t left : {0, 110'000, 160'000, 200'000, 260'000, 500'000, 2'000'000}) {
      SCOPED_TRACE(allow + ", " + std::to_string(left) + " bytes left");
      Log log;
      run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
        MemoryRank rank(configuration, transport);
        const auto reduce = [&](int calls) {
          for (int call = 0; call < calls; ++call) {
            rank.place.reducer->note_other_call();  // the loss: a step is one call
            log.add(rank.rank, rank.reduce({{.count = kMemoryCount}}));
          }
        };
        rank.place.link->times.compressed = 0.3e-3;
        if (rank.rank == 1) {
          rank.device.set_memory_left(left);
        }
        reduce(700);
        const bool tried = rank.place.link->port.met > 0;
        const bool refused = rank.passed(Reason::no_memory) > 0;
        const bool adopts = rank.passed(Reason::none) > 0;
        rank.place.link->times.compressed = 5e-3;
        reduce(allow == "int4" && (adopts || refused) ? 1300 : 100);
        EXPECT_THAT(rank.place.reducer->failure(), IsEmpty());
        EXPECT_EQ(rank.passed(Reason::untried) > 0, !tried);
        if (refused) {
          EXPECT_EQ(rank.place.link->port.met, 8) << "nothing is compared any more";
        }
        if (rank.rank == 0) {
          became.insert(adopts ? "adopted" : refused ? "refused" : tried ? "tried" : "untried");
        }
      });
      const std::string calls = log.equal();
      EXPECT_EQ(calls.find('!'), std::string::npos);
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
    EXPECT_TRUE(became.contains("adopted") && became.contains("untried"));
    EXPECT_EQ(became.contains("refused"), allow == "int4") << "an exact call takes more than a trial";
  }
}

}  // namespace
}  // namespace gradwire::drop_in

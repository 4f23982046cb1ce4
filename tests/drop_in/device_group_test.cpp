// Tests groups: the effect of a thread's calls between start and end, on ranks whose host waits for the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "drop_in/absent_device.hpp"
#include "tests/drop_in/device_harness.hpp"

namespace gradwire::drop_in {
namespace {

using test::run_ranks;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kGroupCount = 20000;

// A rank in two communicators of the same ranks.
struct Pair {
  Pair(const Configuration& configuration, const std::shared_ptr<Transport>& first,
       const std::shared_ptr<Transport>& second)
      : process(1 + static_cast<std::uint64_t>(first->rank())),
        a(configuration, ledger, first, process),
        b(configuration, ledger, second, process) {
    nccl.links = {a.link, b.link};
  }
  void agree() {
    reach_agreement(std::vector{a.reducer, b.reducer}, nccl);
    nccl.log.clear();
  }
  void synchronize() const {
    a.link->host.synchronize();
    b.link->host.synchronize();
  }

  std::uint64_t process;
  Ledger ledger;
  HostLibrary nccl;
  Place a;
  Place b;
};

std::vector<float> ramp(std::uint64_t count, int rank) {
  std::vector<float> values(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(i % 251) / 251 + static_cast<float>(rank);
  }
  return values;
}

// Expects each element to be the sum of the ranks' ramps, except for what int8 drops twice.
void expect_sum(const std::vector<float>& values, int world) {
  for (std::uint64_t i = 0; i < values.size(); i += 37) {
    const float sum =
        static_cast<float>(world) * static_cast<float>(i % 251) / 251 + static_cast<float>(world * (world - 1)) / 2;
    ASSERT_NEAR(values[i], sum, 0.04 * world) << i;
  }
}

void run_two(int world, const std::string& policy, const std::function<void(Pair&)>& body) {
  const Configuration configuration = configuration_of(policy);
  const auto second = make_inproc_world(world);
  run_ranks(world, [&](std::shared_ptr<Transport> transport) {
    const auto self = static_cast<std::size_t>(transport->rank());
    Pair rank(configuration, std::move(transport), second[self]);
    body(rank);
  });
}

// Mutation tried: communicators are not ordered (the watchdog ends the test).
TEST(DeviceGroup, RanksMayNameCommunicatorsInAnyOrder) {
  run_two(3, "", [](Pair& rank) {
    rank.agree();
    rank.a.link->blocks = rank.b.link->blocks = true;
    std::vector<float> first = ramp(kGroupCount, rank.a.rank);
    std::vector<float> second = ramp(kGroupCount + 5000, rank.a.rank);
    std::vector<DeviceCall> calls = {
        call_of(rank.a, {.count = first.size()}, first.data(), first.data(), rank.nccl),
        call_of(rank.b, {.count = second.size()}, second.data(), second.data(), rank.nccl)};
    if (rank.a.rank == 1) {
      std::swap(calls[0], calls[1]);
    }
    EXPECT_EQ(issue(calls, rank.nccl), 0);
    rank.synchronize();
    expect_sum(first, 3);
    expect_sum(second, 3);
    EXPECT_THAT(rank.nccl.log, IsEmpty());
  });
}

// Mutation tried: communicators agree one after the other (the watchdog ends the test).
TEST(DeviceGroup, NorForTheAgreement) {
  run_two(2, "", [](Pair& rank) {
    std::vector<std::shared_ptr<DeviceReducer>> reducers = {rank.a.reducer, rank.b.reducer, rank.a.reducer};
    if (rank.a.rank == 1) {
      std::swap(reducers[0], reducers[1]);
    }
    reach_agreement(reducers, rank.nccl);
    EXPECT_TRUE(rank.a.reducer->agreed() && rank.b.reducer->agreed());
    EXPECT_THAT(rank.nccl.log, ElementsAre("start", "end"));
    reach_agreement(reducers, rank.nccl);
    EXPECT_EQ(rank.nccl.log.size(), 2U) << "once";
  });
}

// The exchange of one rank on a communicator of two, which NCCL connects with its first call.
struct Meeting {
  std::barrier<> connection{2};
  std::mutex mutex;
  std::condition_variable said_more;
  std::map<int, std::vector<std::byte>> said;
};

class MeetingGather final : public RankGather {
 public:
  MeetingGather(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}

  void put(std::span<const std::byte> mine) override { mine_.assign(mine.begin(), mine.end()); }
  void post() override { posted_ = true; }
  void take(std::span<std::byte> all, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(meeting_.mutex);
    if (!meeting_.said_more.wait_for(lock, timeout, [&] { return meeting_.said.size() == 2; })) {
      throw Error(ErrorCode::timeout, "the ranks did not agree in time");
    }
    for (const auto& [rank, said] : meeting_.said) {
      std::copy(said.begin(), said.end(), all.begin() + static_cast<std::ptrdiff_t>(said.size()) * rank);
    }
  }

  [[nodiscard]] bool posted() const noexcept { return posted_; }
  void connect() { meeting_.connection.arrive_and_wait(); }
  void start() {
    const std::lock_guard lock(meeting_.mutex);
    meeting_.said[rank_] = mine_;
    meeting_.said_more.notify_all();
    posted_ = false;
  }

 private:
  Meeting& meeting_;
  int rank_;
  std::vector<std::byte> mine_;
  bool posted_ = false;
};

// Like NCCL, it connects all communicators of a group before it starts any of their calls.
class ConnectingLibrary final : public DeviceLibrary {
 public:
  [[nodiscard]] int start_group() override { return 0; }
  [[nodiscard]] int end_group() override {
    std::vector<std::shared_ptr<MeetingGather>> posted = gathers;
    std::erase_if(posted, [](const auto& gather) { return !gather->posted(); });
    {
      std::vector<std::jthread> connecting;
      for (const auto& gather : posted) {
        connecting.emplace_back([&gather] { gather->connect(); });
      }
    }
    for (const auto& gather : posted) {
      gather->start();
    }
    return 0;
  }
  [[nodiscard]] int failed() const noexcept override { return 99; }
  void say(const std::string& text) override { said += text + '\n'; }

  std::vector<std::shared_ptr<MeetingGather>> gathers;
  std::string said;
};

// One rank makes its first calls on two communicators one by one, and waits in the first for the agreement; another has
// both in one group, which starts nothing before the second is connected. That ends with an error that says so, also
// where the job has set no timeout.
TEST(DeviceGroup, FirstCallsThatOneRankGroupsAndAnotherDoesNotEndInTime) {
  for (const bool alike : {true, false}) {
    std::array<Meeting, 2> meetings;
    Configuration configuration = configuration_of("");
    configuration.timeout.reset();
    configuration.answer_limit = std::chrono::milliseconds(alike ? 20'000 : 300);
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      const int self = transport->rank();
      Ledger ledger;
      ConnectingLibrary nccl;
      std::vector<std::shared_ptr<DeviceReducer>> reducers;
      for (Meeting& meeting : meetings) {
        nccl.gathers.push_back(std::make_shared<MeetingGather>(meeting, self));
        reducers.push_back(std::make_shared<DeviceReducer>(
            configuration, ledger,
            make_absent_link(self, 2, nccl.gathers.back(), Error(ErrorCode::out_of_memory, "no device")),
            1 + static_cast<std::uint64_t>(self)));
      }
      if (alike || self == 1) {
        reach_agreement(reducers, nccl);
      } else {
        reach_agreement({reducers.data(), 1}, nccl);
        EXPECT_THAT(nccl.said, ::testing::HasSubstr("did not agree in time (or does one rank group calls on several"));
        reach_agreement({reducers.data() + 1, 1}, nccl);
      }
      EXPECT_EQ(reducers[0]->agreed(), alike || self == 1);
      EXPECT_TRUE(reducers[1]->agreed());
    });
  }
}

// Passed calls go first, as one group, in the order in which they were called. Mutation tried: they go in the order of
// the communicators.
TEST(DeviceGroup, PassedCallsStayAGroup) {
  run_two(2, "[[rule]]\nmax_bytes = \"100kB\"\ncodec = \"exact\"\n", [](Pair& rank) {
    rank.agree();
    std::vector<std::vector<float>> values(5, ramp(kGroupCount, rank.a.rank));
    values[1] = values[3] = ramp(2 * kGroupCount, rank.a.rank);
    const bool swapped = rank.a.reducer->identity() > rank.b.reducer->identity();
    Place& later = swapped ? rank.a : rank.b;
    Place& earlier = swapped ? rank.b : rank.a;
    const std::vector<DeviceCall> calls = {
        call_of(later, {.label = "passed 0"}, values[0].data(), values[0].data(), rank.nccl),
        call_of(earlier, {.count = 2 * kGroupCount}, values[1].data(), values[1].data(), rank.nccl),
        call_of(earlier, {.label = "passed 2"}, values[2].data(), values[2].data(), rank.nccl),
        call_of(later, {.count = 2 * kGroupCount}, values[3].data(), values[3].data(), rank.nccl),
        call_of(later, {.label = "passed 4"}, values[4].data(), values[4].data(), rank.nccl)};
    EXPECT_EQ(issue(calls, rank.nccl), 0);
    EXPECT_THAT(rank.nccl.log, ElementsAre("start", "passed 0", "passed 2", "passed 4", "end"));
    rank.synchronize();
    expect_sum(values[1], 2);
    expect_sum(values[3], 2);
    EXPECT_EQ(values[0], ramp(kGroupCount, rank.a.rank)) << "the library decides this";
  });
}

// One communicator has several calls on several streams: each stream is joined, and equal shapes do not share frames.
TEST(DeviceGroup, CallsOfOneCommunicatorOnSeveralStreams) {
  run_two(2, "", [](Pair& rank) {
    rank.agree();
    int streams[2] = {};
    std::vector<std::vector<float>> values(3, ramp(kGroupCount, rank.a.rank));
    std::vector<DeviceCall> calls;
    for (std::size_t i = 0; i < values.size(); ++i) {
      calls.push_back(call_of(rank.a, {.stream = &streams[i % 2]}, values[i].data(), values[i].data(), rank.nccl));
    }
    EXPECT_EQ(issue(calls, rank.nccl), 0);
    EXPECT_EQ(rank.a.link->streams, (std::vector<void*>{&streams[0], &streams[1], &streams[0], &streams[1]}));
    EXPECT_EQ(rank.a.link->host.followed, 2U);
    EXPECT_EQ(rank.a.link->host.led, 2U);
    rank.synchronize();
    for (const auto& each : values) {
      expect_sum(each, 2);
    }
  });
}

TEST(DeviceGroup, TheLibrarysErrorComesFirst) {
  run_two(2, "[[rule]]\nmax_bytes = \"100kB\"\ncodec = \"exact\"\n", [](Pair& rank) {
    rank.agree();
    std::vector<float> small(kGroupCount);
    std::vector<float> large(2 * kGroupCount);
    const std::vector<DeviceCall> calls = {
        call_of(rank.a, {.label = "x"}, small.data(), small.data(), rank.nccl),
        call_of(rank.a, {.label = "y"}, small.data(), small.data(), rank.nccl),
        call_of(rank.a, {.count = large.size()}, large.data(), large.data(), rank.nccl)};
    rank.nccl.end_code = 5;
    EXPECT_EQ(issue(calls, rank.nccl), 5);
    EXPECT_EQ(rank.a.link->host.waiting(), 0U) << "nothing of a failed group runs";
  });
}

// A step is found inside a group: residuals of calls before and after it are not mixed up.
TEST(DeviceGroup, TheStepMayChangeInsideAGroup) {
  run_two(2, "[defaults]\ncodec = \"int4\"\n", [](Pair& rank) {
    rank.agree();
    std::vector<std::vector<float>> values;
    for (std::uint64_t i = 0; i < 4; ++i) {
      values.push_back(ramp(kGroupCount + i, rank.a.rank));
    }
    const auto group = [&](const std::vector<std::size_t>& which) {
      std::vector<DeviceCall> calls;
      for (const std::size_t i : which) {
        calls.push_back(call_of(rank.a, {.count = values[i].size()}, values[i].data(), values[i].data(), rank.nccl));
      }
      EXPECT_EQ(issue(calls, rank.nccl), 0);
      rank.synchronize();
    };
    for (int step = 0; step < 10; ++step) {
      group({0, 1});
    }
    EXPECT_GT(rank.a.reducer->residual_bytes(), 0U);
    group({0, 3, 2});  // call 0 is as expected, call 3 is not
    EXPECT_EQ(rank.ledger.resets(), 1U);
    EXPECT_EQ(rank.a.reducer->residual_bytes(), 0U);
    EXPECT_TRUE(rank.a.reducer->failure().empty()) << rank.a.reducer->failure();
  });
}

// Small calls of a group are made together. Bytes are those of the same calls made one by one, which they are where
// some rank has no memory for the group; residuals stay by place. Codecs alternate, and a call is a scatter, another is
// too large to be joined, a third has a factor in device memory. Mutations tried: residuals of a run go to its first
// place; the factor of a call is that of the one before; calls that join are numbered from 0 in each joint.
TEST(DeviceGroup, SmallCallsAreMadeTogetherWithTheBytesOfSingleOnes) {
  constexpr int kRanks = 3;
  constexpr int kSingle = 18;  // steps whose calls are made one by one, until residuals are kept
  constexpr int kSteps = 22;
  const Configuration configuration =
      configuration_of("[defaults]\ncodec = \"int4\"\n[[rule]]\nmax_bytes = \"90kB\"\ncodec = \"int8\"\n");
  const std::vector<CallOf> kinds = {
      {.count = 20000},
      {.count = 30000},
      {.count = 40000, .dtype = DType::bf16, .reduction = Reduction::mean},
      {.count = 60000},
      {.count = 15000, .function = Function::nccl_reduce_scatter},
      {.count = 20001, .factor = 0.5},
      {.count = 40000},
      {.count = 22000},
  };
  std::mutex mutex;
  std::map<std::pair<bool, int>, std::string> results;  // by whether there is memory for groups, and rank
  for (const bool together : {true, false}) {
    run_ranks(kRanks, [&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      Ledger ledger;
      HostLibrary nccl;
      Place place(configuration, ledger, transport, 1 + static_cast<std::uint64_t>(rank));
      nccl.links = {place.link};
      reach_agreement(std::vector{place.reducer}, nccl);
      std::vector<float> factor{0.25F};
      std::vector<test::Values> values;
      for (const CallOf& kind : kinds) {
        values.emplace_back(kind.dtype, kind.count * (kind.function == Function::nccl_reduce_scatter ? kRanks : 1));
      }
      std::string all;
      for (int step = 0; step < kSteps; ++step) {
        place.reducer->note_other_call();  // the loss
        std::vector<DeviceCall> calls;
        for (std::size_t i = 0; i < kinds.size(); ++i) {
          std::vector<double> input(values[i].view().count);
          for (std::size_t e = 0; e < input.size(); ++e) {
            input[e] =
                static_cast<double>((e * (2 * i + 3) + static_cast<std::size_t>(7 * rank + step)) % 1009) / 500 - 1;
          }
          const test::Values fresh(kinds[i].dtype, input);
          values[i] = fresh;
          CallOf call = kinds[i];
          call.device_factor = i == 3 ? factor.data() : nullptr;
          auto* const data = static_cast<std::byte*>(values[i].view().data);
          const bool scatters = call.function == Function::nccl_reduce_scatter;
          calls.push_back(call_of(place, call, data,
                                  data + (scatters ? static_cast<std::uint64_t>(rank) * call.count * 4 : 0), nccl));
        }
        if (step == kSingle && !together && rank == 1) {
          place.link->host.set_memory_left(0);
        }
        const std::uint64_t runs = place.link->host.led;
        if (step < kSingle) {
          for (const DeviceCall& call : calls) {
            EXPECT_EQ(issue({&call, 1}, nccl), 0);
          }
        } else {
          EXPECT_EQ(issue(calls, nccl), 0);
          EXPECT_EQ(place.link->host.led - runs, together ? 1U : kinds.size());
        }
        place.link->host.synchronize();
        for (test::Values& value : values) {
          all.append(static_cast<const char*>(value.view().data),
                     value.view().count * element_bytes(value.view().dtype));
        }
        all += std::to_string(place.reducer->residual_bytes());
      }
      EXPECT_GT(place.reducer->residual_bytes(), 0U);
      EXPECT_TRUE(place.reducer->failure().empty()) << place.reducer->failure();
      for (const auto& [what, totals] : ledger.classes()) {
        all += std::to_string(what.count) + " " + std::to_string(totals.compressed_calls) + " " +
               std::to_string(totals.bytes_sent) + "\n";
      }
      const std::lock_guard lock(mutex);
      results[{together, rank}] = std::move(all);
    });
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string& joined = results[{true, rank}];
    const std::string& single = results[{false, rank}];
    EXPECT_EQ(std::mismatch(joined.begin(), joined.end(), single.begin(), single.end()).first - joined.begin(),
              static_cast<std::ptrdiff_t>(joined.size()))
        << "rank " << rank;
  }
}

}  // namespace
}  // namespace gradwire::drop_in

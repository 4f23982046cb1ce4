// Tests that the drop-in's calls on device memory give the same bytes as the same codecs on host memory; also
// agreement, steps, and failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/communicator.hpp"
#include "tests/drop_in/device_harness.hpp"

namespace gradwire::drop_in {
namespace {

using test::run_ranks;
using test::Values;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kElements = 20000;

// One rank with all it needs; it agrees at once.
struct Single {
  Single(const Configuration& configuration, const std::shared_ptr<Transport>& transport,
         std::optional<std::uint64_t> process = {}, std::size_t limit = ~std::size_t{0})
      : place(configuration, ledger, transport, process.value_or(1 + static_cast<std::uint64_t>(transport->rank())),
              limit) {
    nccl.links.push_back(place.link);
    reach_agreement(std::vector{place.reducer}, nccl);
    nccl.log.clear();
  }

  // Returns whether the call was compressed; then the result is in the memory.
  bool reduce(const CallOf& what, const void* send, void* receive) {
    nccl.log.clear();
    const DeviceCall call = call_of(place, what, send, receive, nccl);
    const std::uint64_t received = what.count * element_bytes(what.dtype);
    place.link->host.call("what computes the input", {{send, call.bytes, true}}, [] {});
    code = issue(std::vector{call}, nccl);
    place.link->host.call("what reads the output", {{receive, received, false}}, [] {});
    place.link->host.synchronize();
    return nccl.log.empty() && code == 0;
  }
  bool reduce_in_place(std::uint64_t count, std::vector<float>& values) {
    values.resize(count, 0.5F);
    return reduce({.count = count}, values.data(), values.data());
  }
  // Returns the number of passed calls with this reason.
  [[nodiscard]] std::uint64_t passed(Reason reason) const { return test::calls_for(ledger, reason); }

  Ledger ledger;
  HostLibrary nccl;
  Place place;
  int code = 0;
};

struct Case {
  std::string codec;
  bool in_place = true;
  CallOf call = {};
  bool learns = false;
};

std::string bytes_of(const View& view) {
  return {static_cast<const char*>(view.data), view.count * element_bytes(view.dtype)};
}

Values input_of(const CallOf& call, std::uint64_t count, int rank, int round) {
  std::vector<double> values(count);
  std::mt19937 random(static_cast<unsigned>(17 * rank + 1000 * round));
  std::normal_distribution<double> normal;
  for (double& value : values) {
    value = normal(random);
  }
  return Values(call.dtype, values);
}

// Makes the same calls over a transport of their own, as a job without devices would.
std::string on_host(Communicator& host, const Case& given, View input, FeedbackBuffer* feedback) {
  const CallOptions options{.codec = CodecSpec::parse(given.codec),
                            .algorithm = Algorithm::two_shot,
                            .reduction = given.call.reduction,
                            .feedback = feedback};
  if (given.call.function == Function::nccl_all_reduce) {
    host.all_reduce(input, options);
    return bytes_of(input);
  }
  Values segment(given.call.dtype, given.call.count);
  host.reduce_scatter(input, segment.view(),
                      std::vector<std::uint64_t>(static_cast<std::size_t>(host.world_size()), given.call.count),
                      options);
  return bytes_of(segment.view());
}

// Mutations tried, each fails here: a residual is not kept; the step is not advanced; the mean is left out; all ranks
// write rank 0's segment.
TEST(DeviceReducer, TheBytesOfTheHost) {
  constexpr Function kScatter = Function::nccl_reduce_scatter;
  const std::vector<Case> cases = {
      {"int8", true},
      {"int8", false, {.count = 40000 + 7, .dtype = DType::f16, .reduction = Reduction::mean}},
      {"int8", true, {.count = 12000 + 5, .function = kScatter, .dtype = DType::bf16}},
      {"fp8", false, {.count = 8192, .function = kScatter, .reduction = Reduction::mean}},
      {"int4", true, {.reduction = Reduction::mean}, true},
      {"topk(5%)+int8", false, {.count = 40000, .dtype = DType::bf16}, true},
      {"int2", true, {.count = 9000, .function = kScatter, .reduction = Reduction::mean}, true},
  };
  for (const Case& given : cases) {
    SCOPED_TRACE(given.codec);
    const Configuration configuration = configuration_of("[defaults]\ncodec = \"" + given.codec + "\"\n");
    auto host_world = make_inproc_world(3);
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      const auto rank = static_cast<std::size_t>(transport->rank());
      Single device(configuration, transport);
      device.place.link->has_own = true;
      Communicator host(host_world[rank]);
      const bool scatters = given.call.function == kScatter;
      const std::uint64_t all = given.call.count * (scatters ? 3 : 1);
      FeedbackBuffer feedback(all);
      int compressed = 0;
      Values input(given.call.dtype, all);  // always at one address, which hints at the step
      for (int round = 0; round < (given.learns ? 20 : 3); ++round) {
        const Values fresh = input_of(given.call, all, static_cast<int>(rank), round);
        input = fresh;
        Values output(given.call.dtype, given.call.count);
        const std::uint64_t own = scatters ? rank * given.call.count * element_bytes(given.call.dtype) : 0;
        auto* in_place = static_cast<std::byte*>(input.view().data) + own;
        void* receive = given.in_place ? in_place : output.view().data;
        Values again = input;
        if (given.learns) {
          device.place.reducer->note_other_call();  // the loss, once per step
        }
        if (!device.reduce(given.call, input.view().data, receive)) {
          continue;
        }
        ++compressed;
        const std::string result = bytes_of({receive, given.call.count, given.call.dtype});
        ASSERT_EQ(result, on_host(host, given, again.view(), given.learns ? &feedback : nullptr)) << round;
        EXPECT_TRUE(input.guarded());
        EXPECT_TRUE(output.guarded());
      }
      EXPECT_EQ(compressed, given.learns ? 4 : 3);
      EXPECT_EQ(device.passed(Reason::learning), given.learns ? 16U : 0U);
      EXPECT_EQ(device.place.reducer->residual_bytes() > 0, given.learns);
    });
  }
}

TEST(DeviceReducer, ItsNumbersAreTheTransports) {
  const Configuration configuration = configuration_of("");
  run_ranks(4, [&](const std::shared_ptr<Transport>& transport) {
    Single rank(configuration, transport);
    std::vector<float> values;
    ASSERT_TRUE(rank.reduce_in_place(1 << 18, values));  // before it the ranks ask each other for memory
    const std::uint64_t before = transport->counters().bytes_sent;
    ASSERT_TRUE(rank.reduce_in_place(1 << 18, values));
    const Ledger::Classes classes = rank.ledger.classes();
    ASSERT_EQ(classes.size(), 1U);
    const CallTotals& totals = classes.begin()->second;
    EXPECT_EQ(totals.compressed_calls, 2U);
    EXPECT_EQ(totals.bytes_sent, 2 * (transport->counters().bytes_sent - before));
    EXPECT_EQ(totals.bytes_dense, 2 * dense_bytes(Function::nccl_all_reduce, 4 << 18, 4) / 4);
    EXPECT_GT(totals.ratio(), 3.9);
    EXPECT_EQ(classes.begin()->first.codec, "int8");
    const DeviceCall call = call_of(rank.place, {.count = values.size()}, values.data(), values.data(), rank.nccl);
    const Router::Route route = rank.place.reducer->route(call.call, call.decided, call.op, call.reduce);
    EXPECT_EQ(rank.place.reducer->passed_totals(route, call.bytes).bytes_sent, totals.bytes_sent / 2)
        << "a dry run counts the same";
  });
}

TEST(DeviceReducer, TheCallersStreamIsJoined) {
  const Configuration configuration = configuration_of("");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Single rank(configuration, transport);
    std::vector<float> values(kElements);
    int stream = 0;
    ASSERT_TRUE(rank.reduce({.stream = &stream}, values.data(), values.data()));
    EXPECT_EQ(rank.place.link->streams, (std::vector<void*>{&stream, &stream}));
    EXPECT_EQ(rank.place.link->host.followed, 1U);
    EXPECT_EQ(rank.place.link->host.led, 1U);
  });
}

TEST(DeviceReducer, WhatIsNotCompressedIsPassedOnce) {
  const Configuration configuration = configuration_of("[[rule]]\nmax_bytes = \"100kB\"\ncodec = \"exact\"\n");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Single rank(configuration, transport);
    std::vector<float> values;
    EXPECT_FALSE(rank.reduce_in_place(100, values));
    EXPECT_EQ(rank.nccl.log, std::vector<std::string>{"forward"}) << "a single call needs no group";
    EXPECT_FALSE(rank.reduce_in_place(kElements, values));
    EXPECT_TRUE(rank.reduce_in_place(2 * kElements, values));
    EXPECT_EQ(rank.passed(Reason::below_floor), 1U);
    EXPECT_EQ(rank.passed(Reason::policy_exact), 1U);
    EXPECT_EQ(rank.passed(Reason::none), 1U);
  });
}

// Mutation tried: agree() considers only this rank's own settings; rank 0 then waits for messages of a call that rank 1
// passes.
TEST(DeviceReducer, RanksThatDifferPassEverything) {
  const Configuration mine = configuration_of("");
  const Configuration other = configuration_of("[defaults]\ncodec = \"bf16\"\n");
  Configuration off = configuration_of("");
  off.disabled = "GRADWIRE_DISABLE=1";
  off.mode = Mode::disabled;
  for (const bool disabled : {false, true}) {
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      const int self = transport->rank();
      Single rank(self != 1 ? mine : (disabled ? off : other), transport);
      std::vector<float> values;
      EXPECT_FALSE(rank.reduce_in_place(kElements, values));
      EXPECT_EQ(rank.nccl.log, std::vector<std::string>{"forward"});
      EXPECT_EQ(rank.passed(disabled ? Reason::disabled : Reason::ranks_differ), 1U);
      EXPECT_EQ(rank.nccl.said.size(), self == 0 ? 1U : 0U) << "one rank warns, once";
      if (self == 0) {
        EXPECT_THAT(rank.nccl.said.at(0), HasSubstr(disabled ? "disabled on rank 1" : "ranks differ"));
      }
    });
  }
}

TEST(DeviceReducer, SeveralRanksInOneProcessPass) {
  const Configuration configuration = configuration_of("");
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    const std::uint64_t process = transport->rank() == 0 ? 7 : 8;
    Single rank(configuration, transport, process);
    std::vector<float> values;
    EXPECT_FALSE(rank.reduce_in_place(kElements, values));
    EXPECT_EQ(rank.passed(Reason::one_process), 1U);
    EXPECT_THAT(rank.nccl.said, IsEmpty());
  });
}

TEST(DeviceReducer, ADryRunCountsAndPasses) {
  Configuration configuration = configuration_of("[defaults]\ncodec = \"int4\"\n");
  configuration.dry_run = true;
  configuration.mode = Mode::observing;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Single rank(configuration, transport);
    std::vector<float> values;
    for (int call = 0; call < 20; ++call) {
      rank.place.reducer->note_other_call();
      EXPECT_FALSE(rank.reduce_in_place(kElements, values));
      EXPECT_EQ(rank.nccl.log, std::vector<std::string>{"forward"});
    }
    EXPECT_EQ(rank.passed(Reason::none), 4U);
    EXPECT_EQ(rank.place.reducer->residual_bytes(), 0U);
  });
}

TEST(DeviceReducer, CommunicatorsHaveIdentitiesOfTheirOwn) {
  const Configuration configuration = configuration_of("");
  auto second = make_inproc_world(2);
  std::vector<std::vector<std::uint64_t>> identities(2);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const auto self = static_cast<std::size_t>(transport->rank());
    Single a(configuration, transport);
    Single b(configuration, second[self]);
    identities[self] = {a.place.reducer->identity(), b.place.reducer->identity()};
  });
  EXPECT_EQ(identities[0], identities[1]);
  EXPECT_NE(identities[0][0], identities[0][1]);
}

// Mutation tried: residuals stay when the step changes.
TEST(DeviceReducer, ResidualsGoWithTheStep) {
  const Configuration configuration = configuration_of("[defaults]\ncodec = \"int4\"\n");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Single rank(configuration, transport);
    const auto in_use = [&] { return rank.place.link->lasting().footprint().bytes_in_use; };
    const std::uint64_t before = in_use();
    std::vector<float> even(kElements);
    std::vector<float> odd(kElements + 7);
    const auto reduce = [&](int call) {
      std::vector<float>& values = call % 2 == 0 ? even : odd;
      return rank.reduce({.count = values.size()}, values.data(), values.data());
    };
    for (int call = 0; call < 16; ++call) {
      EXPECT_FALSE(reduce(call));
    }
    EXPECT_TRUE(reduce(16));
    EXPECT_TRUE(reduce(17));
    const std::uint64_t held = rank.place.reducer->residual_bytes();
    EXPECT_GE(held, 4 * 2 * kElements);
    EXPECT_TRUE(reduce(18));
    EXPECT_TRUE(reduce(19));
    EXPECT_EQ(rank.place.reducer->residual_bytes(), held);
    EXPECT_GE(in_use(), before + held);

    EXPECT_FALSE(reduce(21)) << "not the call that was due";
    EXPECT_EQ(rank.ledger.resets(), 1U);
    for (int call = 0; call < 40; ++call) {
      reduce(call);
    }
    EXPECT_EQ(rank.place.reducer->residual_bytes(), held);
    EXPECT_LT(in_use(), before + 2 * held) << "the old ones are still there";
  });
}

// The ranks ask for memory before the old step's residuals go. Mutation tried: the dry run uses those.
TEST(DeviceReducer, AStepOfOtherSizesAsksForItsOwnMemory) {
  const Configuration configuration = configuration_of("[defaults]\ncodec = \"int4\"\n");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Single rank(configuration, transport);
    for (const std::uint64_t scale : {1, 2}) {
      std::vector<float> even(scale * kElements);
      std::vector<float> odd(scale * kElements + 7);
      int compressed = 0;
      for (int call = 0; call < 60; ++call) {
        std::vector<float>& values = call % 2 == 0 ? even : odd;
        compressed += rank.reduce({.count = values.size()}, values.data(), values.data()) ? 1 : 0;
      }
      EXPECT_GT(compressed, 10) << scale;
    }
    EXPECT_EQ(rank.place.reducer->failure(), "");
  });
}

// Mutation tried: residuals stay for ever after their last lossy step, so that 16-bit values travel as 32.
TEST(DeviceReducer, ResidualsEndWithTheLastLossyStage) {
  const Configuration configuration =
      configuration_of("[defaults]\ncodec = \"exact\"\nwarmup = [ { until_step = 20, codec = \"int4\" } ]\n");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Single rank(configuration, transport);
    Values even(DType::bf16, std::vector<double>(2 * kElements, 0.3));
    Values odd(DType::bf16, std::vector<double>(2 * kElements + 8, 0.3));
    const auto sent = [&] {
      std::uint64_t bytes = 0;
      for (const auto& [what, totals] : rank.ledger.classes()) {
        bytes += totals.bytes_sent;
      }
      return bytes;
    };
    const auto bytes_of_a_step = [&] {
      const std::uint64_t before = sent();
      for (const View& values : {even.view(), odd.view()}) {
        rank.reduce({.count = values.count, .dtype = DType::bf16}, values.data, values.data);
      }
      return sent() - before;
    };
    std::uint64_t held = 0;
    std::uint64_t folding = 0;
    for (int step = 0; step < 100 && rank.place.reducer->residual_bytes() >= held; ++step) {
      held = rank.place.reducer->residual_bytes();
      folding = bytes_of_a_step();
    }
    EXPECT_GE(held, 4 * 4 * kElements);
    EXPECT_EQ(rank.place.reducer->residual_bytes(), 0U);
    const std::uint64_t after = bytes_of_a_step();
    EXPECT_GT(after, 0U);
    EXPECT_NEAR(static_cast<double>(folding), 2.0 * static_cast<double>(after), 0.02 * static_cast<double>(folding));
  });
}

TEST(DeviceReducer, AnErrorEndsIt) {
  const Configuration configuration = configuration_of("");
  std::barrier both(2);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Single rank(configuration, transport);
    std::vector<float> values;
    EXPECT_TRUE(rank.reduce_in_place(kElements, values));
    both.arrive_and_wait();
    rank.place.link->host.abort(Error(ErrorCode::transport, "the link broke", ErrorCause::world));
    const DeviceCall call = call_of(rank.place, {.count = kElements}, values.data(), values.data(), rank.nccl);
    rank.code = issue(std::vector{call}, rank.nccl);
    EXPECT_EQ(rank.code, HostLibrary::kFailed);
    EXPECT_THAT(rank.nccl.log, IsEmpty()) << "the other ranks may be inside: it is too late to pass";
    ASSERT_EQ(rank.nccl.said.size(), 1U);
    EXPECT_THAT(rank.nccl.said[0], HasSubstr("the link broke"));
    EXPECT_EQ(issue(std::vector{call}, rank.nccl), HostLibrary::kFailed);
    EXPECT_EQ(rank.nccl.said.size(), 1U);
  });
}

TEST(DeviceReducer, RanksThatDoNotComeAreAnError) {
  Configuration configuration = configuration_of("");
  auto world = make_inproc_world(2);
  Ledger ledger;
  HostLibrary nccl;
  Place alone(configuration, ledger, world[0], 1);
  world[1]->abort(Error(ErrorCode::aborted, "this rank ended", ErrorCause::world));
  reach_agreement(std::vector{alone.reducer}, nccl);
  EXPECT_FALSE(alone.reducer->agreed());
  EXPECT_THAT(alone.reducer->failure(), HasSubstr("this rank ended"));
}

TEST(DeviceReducer, DamagedFramesAreTold) {
  const Configuration configuration = configuration_of("");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Single rank(configuration, transport);
    std::vector<float> values;
    EXPECT_TRUE(rank.reduce_in_place(kElements, values));
    rank.place.link->host.damage_next_frame = true;
    EXPECT_TRUE(rank.reduce_in_place(kElements, values));
    EXPECT_THAT(rank.nccl.said, IsEmpty()) << "no rank waits for the device";
    EXPECT_TRUE(rank.reduce_in_place(kElements, values));
    EXPECT_TRUE(rank.reduce_in_place(kElements, values));
    ASSERT_EQ(rank.nccl.said.size(), 1U) << "once";
    EXPECT_THAT(rank.nccl.said[0], HasSubstr("arrived damaged"));
  });
}

// Mutation tried: a rank that has a second communicator uses it although another one has none.
TEST(DeviceReducer, ASecondCommunicatorIsUsedIfAllRanksHaveIt) {
  const Configuration configuration = configuration_of("");
  for (const int refusing : {-1, 0, 2}) {
    for (const bool offers : {true, false}) {
      run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
        Single device(configuration, transport);
        HostLink& link = *device.place.link;
        link.has_own = true;
        (offers ? link.own.makes : link.own.able) = transport->rank() != refusing;
        std::vector<float> values;
        for (int call = 0; call < 3; ++call) {
          std::fill(values.begin(), values.end(), 0.5F);
          EXPECT_TRUE(device.reduce_in_place(kElements, values));
          EXPECT_NEAR(values[11], 1.5F, 0.02F);
          EXPECT_EQ(link.own.uses, std::optional(refusing < 0));
          EXPECT_EQ(std::exchange(link.own.offered, {}).size(), call == 0 ? 3U : 0U);
        }
        EXPECT_THAT(device.place.reducer->failure(), IsEmpty());
        EXPECT_EQ(device.nccl.said.size(), refusing >= 0 && transport->rank() == 0 ? 1U : 0U);
      });
    }
  }
}

}  // namespace
}  // namespace gradwire::drop_in

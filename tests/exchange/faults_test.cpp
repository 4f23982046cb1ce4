// Tests bad input and broken links: every rank gets an Error that names the problem, within the timeout; none hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "exchange/host/host_executor.hpp"
#include "exchange/resolved_call.hpp"
#include "inputs.hpp"
#include "tests/support/faulty_transport.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using transport::Fault;

struct Outcome {
  bool threw = false;
  ErrorCode code{};
  std::string message;
};

std::vector<Outcome> outcomes_of(std::vector<std::shared_ptr<Transport>> world, const RankBody& body) {
  std::vector<Outcome> outcomes;
  for (const std::exception_ptr& error : run_ranks_catching(std::move(world), body)) {
    Outcome outcome;
    if (error) {
      try {
        std::rethrow_exception(error);
      } catch (const Error& e) {
        outcome = {true, e.code(), e.what()};
      }
    }
    outcomes.push_back(outcome);
  }
  return outcomes;
}

constexpr std::chrono::milliseconds kQuick(400);      // for calls that must time out
constexpr std::chrono::milliseconds kPatient(20000);  // for calls that must not time out, even on a busy machine
CommunicatorOptions waiting(std::chrono::milliseconds timeout) { return {.timeout = timeout, .checksum = true}; }

std::vector<Outcome> reduce_with_fault(int world, const Fault& fault, Algorithm algorithm,
                                       std::chrono::milliseconds timeout = kPatient) {
  auto transports = make_inproc_world(world);
  for (auto& transport : transports) {
    transport = transport::make_faulty(transport, {fault});
  }
  return outcomes_of(std::move(transports), [&](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport, waiting(timeout));
    Values values(DType::f32, gaussian(100000, transport->rank()));
    for (int call = 0; call < 3; ++call) {
      communicator.all_reduce(values.view(), {.algorithm = algorithm, .chunk_bytes = 1 << 14});
    }
  });
}

bool any(const std::vector<Outcome>& outcomes, ErrorCode code, const std::string& text) {
  return std::any_of(outcomes.begin(), outcomes.end(), [&](const Outcome& o) {
    return o.threw && o.code == code && o.message.find(text) != std::string::npos;
  });
}

constexpr Algorithm kAlgorithms[] = {Algorithm::two_shot, Algorithm::one_shot, Algorithm::dense};

// Returns whether every rank except `lost` throws an error that names `lost`, by itself or in a quote of the rank that
// gave up first.
::testing::AssertionResult all_name(const std::vector<Outcome>& outcomes, std::size_t lost) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const Outcome& outcome = outcomes[rank];
    if (rank != lost && ((outcome.code != ErrorCode::timeout && outcome.code != ErrorCode::aborted) ||
                         outcome.message.find(": rank " + std::to_string(lost) + " is silent") == std::string::npos)) {
      return ::testing::AssertionFailure() << "rank " << rank << ": " << outcome.message;
    }
  }
  return ::testing::AssertionSuccess();
}

// Rank 1's first message never arrives: the rank that needs it names rank 1.
TEST(Faults, ALostMessageIsATimeoutThatNamesTheRank) {
  for (const Algorithm algorithm : kAlgorithms) {
    const auto outcomes = reduce_with_fault(2, {.kind = Fault::Kind::drop, .rank = 1, .nth = 0}, algorithm, kQuick);
    EXPECT_TRUE(outcomes[0].threw && outcomes[1].threw);
    EXPECT_TRUE(any(outcomes, ErrorCode::timeout, "waiting for rank 1:") ||
                any(outcomes, ErrorCode::timeout, "waiting for rank 0:"))
        << outcomes[0].message;
  }
}

TEST(Faults, ASilentRankIsNamedByTheSurvivors) {
  for (const Algorithm algorithm : kAlgorithms) {
    const auto outcomes = [&](std::chrono::milliseconds timeout) {
      return reduce_with_fault(4, {.kind = Fault::Kind::kill, .rank = 2, .nth = 0}, algorithm, timeout);
    };
    // On a busy machine living ranks may be late too; then the test gives them more time.
    if (!all_name(outcomes(kQuick), 2)) {
      EXPECT_TRUE(all_name(outcomes(20 * kQuick), 2));
    }
  }
}

TEST(Faults, ACorruptedFrameIsSeenAndNamed) {
  for (const std::uint64_t offset : {0U, 5U, 20U, 40U, 3000U}) {
    const auto outcomes = reduce_with_fault(3, {.kind = Fault::Kind::corrupt, .rank = 1, .nth = 2, .offset = offset},
                                            Algorithm::two_shot);
    bool named = false;
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.threw);
      named = named || ((outcome.code == ErrorCode::corrupt || outcome.code == ErrorCode::mismatch) &&
                        outcome.message.find("rank 1") != std::string::npos);
    }
    EXPECT_TRUE(named) << "offset " << offset << ": " << outcomes[0].message << " / " << outcomes[2].message;
  }
}

TEST(Faults, ATransportFailureEndsEveryRank) {
  const auto outcomes = reduce_with_fault(3, {.kind = Fault::Kind::fail, .rank = 0, .nth = 5}, Algorithm::two_shot);
  EXPECT_EQ(outcomes[0].code, ErrorCode::transport);
  EXPECT_EQ(outcomes[1].code, ErrorCode::aborted);
  EXPECT_EQ(outcomes[2].code, ErrorCode::aborted);
  EXPECT_NE(outcomes[1].message.find("rank 0"), std::string::npos) << outcomes[1].message;
}

TEST(Faults, DelayedMessagesAreNoError) {
  for (const Outcome& outcome : reduce_with_fault(
           3, {.kind = Fault::Kind::delay, .nth = 2, .delay = std::chrono::milliseconds(50)}, Algorithm::two_shot)) {
    EXPECT_FALSE(outcome.threw) << outcome.message;
  }
}

using Call = std::function<void(Communicator&)>;

// Runs `odd` on rank 1 and `usual` elsewhere; all ranks must throw.
std::vector<Outcome> disagree(const Call& usual, const Call& odd, std::chrono::milliseconds timeout) {
  return outcomes_of(make_inproc_world(3), [&](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport, waiting(timeout));
    (transport->rank() == 1 ? odd : usual)(communicator);
  });
}

Call reduce(std::uint64_t count, DType dtype, const CallOptions& options) {
  return [=](Communicator& communicator) {
    Values values(dtype, gaussian(count, communicator.rank()));
    communicator.all_reduce(values.view(), options);
  };
}

// Ranks that leave the algorithm open choose it by their arguments, so ranks with different arguments may differ.
TEST(Disagreement, CountsTypesCodecsAndOrder) {
  for (const Algorithm algorithm : {Algorithm::two_shot, Algorithm::automatic}) {
    SCOPED_TRACE(to_string(algorithm));
    const CallOptions int8{.codec = CodecSpec::parse("int8"), .algorithm = algorithm};
    const CallOptions bf16{.codec = CodecSpec::parse("bf16"), .algorithm = algorithm};
    const Call usual = reduce(50000, DType::f32, int8);
    const Call twice = [&](Communicator& communicator) {
      reduce(50000, DType::f32, int8)(communicator);
      reduce(50000, DType::f32, int8)(communicator);
    };
    const Call then_gather = [&](Communicator& communicator) {
      Values in(DType::f32, 100);
      Values out(DType::f32, 300);
      communicator.all_gather(in.view(), out.view(), std::vector<std::uint64_t>{100, 100, 100}, int8);
    };
    const std::vector<std::pair<Call, Call>> cases{{usual, reduce(50001, DType::f32, int8)},
                                                   {usual, reduce(90000, DType::f32, int8)},
                                                   {usual, reduce(50000, DType::f16, int8)},
                                                   {usual, reduce(50000, DType::f32, bf16)},
                                                   {twice, usual},
                                                   {usual, then_gather},
                                                   {reduce(3, DType::f32, int8), reduce(4, DType::f32, int8)},
                                                   {reduce(3000, DType::f32, int8), usual}};
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const auto outcomes = disagree(cases[i].first, cases[i].second, kQuick);
      for (const std::size_t rank : {0U, 2U}) {  // either saw rank 1's different message, or heard why rank 1 gave up
        EXPECT_TRUE(outcomes[rank].threw) << "case " << i;
        EXPECT_THAT(outcomes[rank].message, ::testing::ContainsRegex("rank 1|ranks (0, )?1")) << "case " << i;
      }
      EXPECT_TRUE(any(outcomes, ErrorCode::mismatch, "") || any(outcomes, ErrorCode::timeout, "")) << "case " << i;
    }
  }
}

// An exact call with an open algorithm is a sum of the transport, without a frame that describes it. Mutation tried:
// only terms are compared.
TEST(Disagreement, ElementsOfExactCalls) {
  const CallOptions exact{.codec = CodecSpec::exact(), .algorithm = Algorithm::automatic};
  struct Difference {
    Call usual;
    Call odd;
    ErrorCode code;
    std::string text;
  };
  for (const Difference& c : {Difference{reduce(1000, DType::f32, exact), reduce(1001, DType::f32, exact),
                                         ErrorCode::mismatch, "ranks differ in the elements, here 100"},
                              Difference{reduce(2000, DType::f32, exact), reduce(1000, DType::f64, exact),
                                         ErrorCode::mismatch, "ranks differ in the elements, here "},
                              Difference{reduce(10'000, DType::f32, exact), reduce(300'000, DType::f32, exact),
                                         ErrorCode::timeout, "make the same calls?"}}) {
    const auto outcomes = disagree(c.usual, c.odd, c.code == ErrorCode::timeout ? kQuick : kPatient);
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.threw);
    }
    EXPECT_TRUE(any(outcomes, c.code, c.text)) << outcomes[0].message;
  }
}

// Ranks that differ in these arguments would go on with different numbers. The test uses sizes below and above those at
// which `dense` is the transport's own sum. Mutation tried: calls have no terms.
TEST(Disagreement, ReductionAndFeedback) {
  const auto with_feedback = [](std::uint64_t count, const CallOptions& options) -> Call {
    return [=](Communicator& communicator) {
      FeedbackBuffer feedback(count);
      CallOptions call = options;
      call.feedback = &feedback;
      reduce(count, DType::f32, call)(communicator);
    };
  };
  for (const Algorithm algorithm : kAlgorithms) {
    for (const std::uint64_t count : {1000U, 50'000U}) {
      SCOPED_TRACE(std::string(to_string(algorithm)) + " x " + std::to_string(count));
      const CallOptions sum{.codec = CodecSpec::parse("int8"), .algorithm = algorithm};
      CallOptions mean = sum;
      mean.reduction = Reduction::mean;
      for (const Call& odd : {reduce(count, DType::f32, mean), with_feedback(count, sum)}) {
        const auto outcomes = disagree(reduce(count, DType::f32, sum), odd, kPatient);
        for (const Outcome& outcome : outcomes) {
          EXPECT_TRUE(outcome.threw);
          EXPECT_TRUE(outcome.code == ErrorCode::mismatch || outcome.code == ErrorCode::aborted) << outcome.message;
        }
        EXPECT_TRUE(any(outcomes, ErrorCode::mismatch, "mean") || any(outcomes, ErrorCode::mismatch, "feedback"))
            << outcomes[0].message;
      }
    }
  }
}

// One rank is still in another world. Mutation tried: frames without an epoch.
TEST(Disagreement, Epochs) {
  const auto outcomes = outcomes_of(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    exchange::HostExecutor executor(*transport, {.epoch = static_cast<std::uint8_t>(7 + transport->rank())});
    const CodecSpec int8 = CodecSpec::parse("int8");
    auto [call, schedule] =
        exchange::resolve({.codec = int8, .second_hop = int8, .count = 10'000}, {transport->rank(), 2});
    Values values(DType::f32, gaussian(10'000, transport->rank()));
    codec::TensorList tensors(DType::f32, call.codecs.first.working());
    tensors.append(values.view().data, values.view().data, 10'000);
    executor.wait(
        *executor.start(std::move(schedule), {.tensors = std::move(tensors), .call = std::move(call), .name = "test"}));
  });
  EXPECT_TRUE(any(outcomes, ErrorCode::mismatch, "epoch")) << outcomes[0].message;
}

// A rank without a weight sends none and waits for none. The sizes are below and above those at which `dense` is the
// transport's own sum; in exact calls, weights come before all frames. Mutation tried: a native sum exchanges weights
// before it has its answer, which ends in timeouts.
TEST(Disagreement, Weights) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (const char* codec : {"int8", "exact"}) {
      for (const DType dtype : {DType::f32, DType::f16}) {
        for (const std::uint64_t count : {10'000U, 50'000U}) {
          SCOPED_TRACE(std::string(to_string(algorithm)) + " " + codec + " " + std::string(to_string(dtype)) + " x " +
                       std::to_string(count));
          const CallOptions sum{.codec = CodecSpec::parse(codec), .algorithm = algorithm};
          CallOptions weighted = sum;
          weighted.weight = 0.5;
          for (const bool most : {false, true}) {
            const auto outcomes = disagree(reduce(count, dtype, most ? weighted : sum),
                                           reduce(count, dtype, most ? sum : weighted), kPatient);
            for (const Outcome& outcome : outcomes) {
              EXPECT_TRUE(outcome.threw);
              EXPECT_TRUE(outcome.code == ErrorCode::mismatch || outcome.code == ErrorCode::aborted) << outcome.message;
            }
            EXPECT_TRUE(any(outcomes, ErrorCode::mismatch, "weight")) << outcomes[0].message;
          }
        }
      }
    }
  }
}

TEST(BadInput, IsNamedAndEndsTheOthers) {
  const CallOptions options;
  Values three(DType::f32, 3);
  const std::vector<std::pair<Call, std::string>> cases{
      {[](Communicator& c) {
         c.all_reduce(View{nullptr, 5, DType::f32}, {});
       },
       "null data"},
      {[](Communicator& c) {
         Values a(DType::f32, 5);
         Values b(DType::f16, 5);
         c.all_reduce(a.view(), b.view(), {});
       },
       "f16"},
      {[](Communicator& c) {
         Values a(DType::f32, 5);
         Values b(DType::f32, 6);
         c.all_reduce(a.view(), b.view(), {});
       },
       "6 elements"},
      {[](Communicator& c) {
         std::vector<float> a(10);
         c.all_reduce(view(a.data(), 6), view(a.data() + 2, 6), {});
       },
       "overlap"},
      {[](Communicator& c) {
         std::vector<float> a(10);
         c.all_reduce(View{a.data(), 10, static_cast<DType>(9)}, {});
       },
       "dtype 9"},
      {[](Communicator& c) {
         std::vector<float> a(10);
         c.broadcast(view(a.data(), 10), 7, {});
       },
       "root 7"},
      {[](Communicator& c) {
         std::vector<float> a(10);
         c.all_reduce(view(a.data(), 10), {.weight = -1});
       },
       "weight"},
      {[](Communicator& c) {
         std::vector<float> a(10);
         c.reduce_scatter(view(a.data(), 10), view(a.data(), 5), std::vector<std::uint64_t>{5, 5}, {});
       },
       "counts has 2"}};
  for (const auto& [call, text] : cases) {
    const auto outcomes = disagree(reduce(5, DType::f32, options), call, kPatient);
    EXPECT_NE(outcomes[1].message.find(text), std::string::npos) << outcomes[1].message;
    EXPECT_NE(outcomes[1].code, ErrorCode::aborted);
    EXPECT_TRUE(outcomes[0].threw && outcomes[2].threw);
  }
}

TEST(BadInput, ADeadCommunicatorSaysWhy) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport);
    EXPECT_THROW(communicator.all_reduce(View{nullptr, 5, DType::f32}, {}), Error);
    std::vector<float> values(5);
    try {
      communicator.all_reduce(view(values.data(), 5), {});
      ADD_FAILURE() << "a dead communicator reduced";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::aborted);
      EXPECT_NE(std::string(error.what()).find("null data"), std::string::npos) << error.what();
    }
  });
}

TEST(Faults, ADamagedWeightIsSeenAndNamed) {
  const Tag weight_hop = 3;  // the weight hop of the first call's lane 0
  auto transports = make_inproc_world(3);
  for (auto& transport : transports) {
    transport = transport::make_faulty(
        transport, {{.kind = Fault::Kind::corrupt, .rank = 1, .nth = 0, .peer = 2, .tag = weight_hop, .offset = 7}});
  }
  const auto outcomes = outcomes_of(std::move(transports), [](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport, waiting(kPatient));
    std::vector<float> values(50000, 1.0F);
    communicator.all_reduce(view(values.data(), values.size()), {.weight = 8});
  });
  EXPECT_EQ(outcomes[2].code, ErrorCode::corrupt);
  EXPECT_NE(outcomes[2].message.find("weight of rank 1"), std::string::npos) << outcomes[2].message;
  EXPECT_TRUE(outcomes[0].threw && outcomes[1].threw);
}

// Mutation tried: a default spec is not a codec; then the communicator ends on every rank.
TEST(BadInput, ADefaultCodecIsExact) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport);
    std::vector<float> values(10'000, 0.1F);
    communicator.all_reduce(view(values.data(), values.size()), {.codec = {}, .weight = 3});
    EXPECT_EQ(values[9999], 3 * 0.1F + 3 * 0.1F);
  });
}

TEST(BadInput, WeightsThatSumToZero) {
  const auto outcomes = outcomes_of(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport, waiting(kPatient));
    std::vector<float> values(10);
    communicator.all_reduce(view(values.data(), 10), {.weight = 0});
  });
  EXPECT_NE(outcomes[0].message.find("weights"), std::string::npos) << outcomes[0].message;
  EXPECT_TRUE(outcomes[1].threw);
}

}  // namespace
}  // namespace gradwire::test

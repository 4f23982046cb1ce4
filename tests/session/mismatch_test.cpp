// Tests ranks that disagree and wrong calls: every rank gets an Error that names the mistake, and none hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "model.hpp"
#include "tests/support/faulty_transport.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using Body = std::function<void(Session&, int rank)>;

struct Outcome {
  bool threw = false;
  ErrorCode code{};
  std::string message;
};

std::vector<Outcome> run(int world, const std::function<Policy(int)>& policy, const Body& body,
                         Threading threading = Threading::background,
                         std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  std::vector<Outcome> outcomes;
  for (const auto& error :
       run_ranks_catching(make_inproc_world(world), [&](const std::shared_ptr<Transport>& transport) {
         Session session(transport, policy(transport->rank()), {.timeout = timeout, .threading = threading});
         body(session, transport->rank());
       })) {
    Outcome outcome;
    try {
      if (error) {
        std::rethrow_exception(error);
      }
    } catch (const Error& e) {
      outcome = {true, e.code(), e.what()};
    }
    outcomes.push_back(outcome);
  }
  return outcomes;
}

Policy int8(int /*rank*/) { return {}; }

std::vector<float>& memory(std::size_t count) {
  thread_local std::vector<float> values;
  values.resize(std::max(values.size(), count));
  return values;
}

void step(Session& session, const std::vector<std::pair<std::string, std::uint64_t>>& tensors) {
  thread_local std::vector<std::vector<float>> values;  // outlives the session, even if this throws
  values.clear();
  std::vector<TensorId> ids;
  for (const auto& [name, count] : tensors) {
    values.emplace_back(count, 1.0F);
    ids.push_back(session.add(name, view(values.back().data(), count)));
  }
  for (const TensorId id : ids) {
    session.ready(id);
  }
  session.finish();
}

void expect_all_name(const std::vector<Outcome>& outcomes, ErrorCode code, const std::string& text) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_TRUE(outcomes[rank].threw) << "rank " << rank;
    EXPECT_NE(outcomes[rank].message.find(text), std::string::npos)
        << "rank " << rank << ": " << outcomes[rank].message;
  }
  EXPECT_TRUE(std::any_of(outcomes.begin(), outcomes.end(), [&](const Outcome& o) { return o.code == code; }));
}

TEST(Mismatch, ATensorOnOneRankOnly) {
  for (const Threading threading : kThreading) {
    const auto outcomes = run(
        3, int8,
        [](Session& session, int rank) {
          rank == 1 ? step(session, {{"a", 100}, {"extra.weight", 5000}}) : step(session, {{"a", 100}});
        },
        threading);
    expect_all_name(outcomes, ErrorCode::mismatch, "extra.weight");
  }
}

TEST(Mismatch, OrderCountAndPolicy) {
  expect_all_name(run(3, int8,
                      [](Session& session, int rank) {
                        rank == 2 ? step(session, {{"b", 100}, {"a", 100}}) : step(session, {{"a", 100}, {"b", 100}});
                      }),
                  ErrorCode::mismatch, "rank 2");
  expect_all_name(run(2, int8,
                      [](Session& session, int rank) {
                        step(session, {{"w", rank == 0 ? 70000U : 70001U}});
                      }),
                  ErrorCode::mismatch, "70001");
  expect_all_name(run(
                      3, [](int rank) { return Policy::uniform(rank == 1 ? "bf16" : "int8"); },
                      [](Session& session, int) {
                        step(session, {{"w", 70000}});
                      }),
                  ErrorCode::mismatch, "bf16");
  expect_all_name(run(2, int8,
                      [](Session& session, int rank) {
                        if (rank == 1) {
                          session.set_weight(3);
                        }
                        step(session, {{"w", 70000}});
                      }),
                  ErrorCode::mismatch, "weighted");
}

// reserve() has agreed on steps without weights. Mutation tried: ranks do not agree again, and wait with no message
// about weights.
TEST(Mismatch, WeightsAfterReserve) {
  const auto with_weight = [](const std::function<bool(int)>& has_one, std::chrono::milliseconds timeout) {
    const Body body = [&](Session& session, int rank) {
      auto& values = memory(70000);
      const TensorId id = session.add("w", view(values.data(), 70000));
      session.reserve();
      if (has_one(rank)) {
        session.set_weight(1 + rank);
      }
      std::fill(values.begin(), values.end(), static_cast<float>(rank));
      session.ready(id);
      session.finish();
      EXPECT_NEAR(values[5], 2.0 / 3, 0.02) << "weighted by 1 and 2";
    };
    return run(2, int8, body, Threading::background, timeout);
  };
  for (const Outcome& outcome : with_weight([](int) { return true; }, std::chrono::seconds(20))) {
    EXPECT_FALSE(outcome.threw) << outcome.message;
  }
  const auto outcomes = with_weight([](int rank) { return rank == 1; }, std::chrono::milliseconds(400));
  EXPECT_TRUE(outcomes[0].threw && outcomes[1].threw);
  EXPECT_THAT(outcomes[0].message + outcomes[1].message, ::testing::HasSubstr("did every rank call it?"));
}

TEST(Mismatch, BroadcastOfDifferentValues) {
  expect_all_name(run(2, int8,
                      [](Session& session, int rank) {
                        auto& values = memory(20);
                        session.broadcast(view(values.data(), rank == 0 ? 10U : 20U));
                      }),
                  ErrorCode::mismatch, "broadcast");
}

TEST(Misuse, FinishWithATensorMissing) {
  for (const Threading threading : kThreading) {
    const auto outcomes = run(
        3, int8,
        [](Session& session, int rank) {
          auto gradients = make_gradients();
          add_all(session, gradients);
          for (const Gradient& gradient : gradients) {
            if (rank != 1 || gradient.name != "layer2.weight") {
              session.ready(gradient.id);
            }
          }
          session.finish();
        },
        threading);
    expect_all_name(outcomes, ErrorCode::invalid_argument, "layer2.weight");
    EXPECT_EQ(outcomes[1].code, ErrorCode::invalid_argument);
    EXPECT_EQ(outcomes[0].code, ErrorCode::aborted);
  }
}

// A rank that ends because of its own wrong call tells the others the reason, even if its step had not begun.
TEST(Misuse, OfOneRankReachesTheOthersByName) {
  using Fault = std::function<void(Session&, TensorId)>;
  const std::vector<std::pair<Fault, std::string>> faults{
      {[](Session& session, TensorId id) {
         session.ready(id);
         session.ready(id);
       },
       "ready already"},
      {[](Session& session, TensorId id) {
         session.ready(id, View{nullptr, 100000, DType::f32});
       },
       "null data"},
      {[](Session& session, TensorId id) {
         session.ready(id, View{memory(100000).data(), 100000, DType::bf16});
       },
       "bf16"},
      {[](Session& session, TensorId) { session.set_weight(-1); }, "set_weight"},
      {[](Session& session, TensorId) {
         session.add("null", View{nullptr, 3, DType::f32});
       },
       "null data"}};
  for (const auto& [fault, text] : faults) {
    for (const Threading threading : kThreading) {
      const auto outcomes = run(
          3, int8,
          [&, &fault = fault](Session& session, int rank) {
            auto& values = memory(100000);
            const TensorId id = session.add("w", view(values.data(), 100000));
            if (rank == 1) {
              fault(session, id);
            }
            session.ready(id);
            session.finish();
          },
          threading);
      for (const Outcome& outcome : outcomes) {
        EXPECT_TRUE(outcome.threw);
        EXPECT_NE(outcome.message.find(text), std::string::npos) << outcome.message;
      }
      EXPECT_EQ(outcomes[1].code, ErrorCode::invalid_argument);
      EXPECT_EQ(outcomes[0].code, ErrorCode::aborted);
    }
  }
}

TEST(Misuse, OfOneRankIsAnErrorThere) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values(10);
    Session session(transport, Policy());
    const auto expect = [](const std::function<void()>& call, const std::string& text) {
      try {
        call();
        ADD_FAILURE() << "no error: " << text;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      }
    };
    expect([&] { session.add("null", View{nullptr, 3, DType::f32}); }, "null data");
    expect([&] { session.add("odd", View{values.data(), 3, static_cast<DType>(77)}); }, "dtype 77");
    const TensorId id = session.add("w", view(values.data(), 10));
    expect([&] { session.add("w", view(values.data(), 10)); }, "added already");
    expect([&] { session.ready(static_cast<TensorId>(9)); }, "id 9");
    expect([&] { session.ready(id, view(values.data(), 9)); }, "f32 x 9");
    session.ready(id);
    expect([&] { session.ready(id); }, "ready already");
    expect([&] { session.add("late", view(values.data(), 10)); }, "before the first ready()");
    expect([&] { session.broadcast(view(values.data(), 10)); }, "step is under way");
    expect([&] { session.set_weight(1); }, "step is under way");
    session.finish();
    expect([&] { session.set_weight(1); }, "first step");
    expect([&] { session.broadcast(view(values.data(), 10), 1); }, "root 1");
  });
}

TEST(Misuse, UseAfterAbort) {
  const auto outcomes = run(2, int8, [](Session& session, int rank) {
    auto& values = memory(100000);
    const TensorId id = session.add("w", view(values.data(), 100000));
    if (rank == 0) {
      session.abort("the user pressed stop");
    }
    session.ready(id);
    session.finish();
  });
  expect_all_name(outcomes, ErrorCode::aborted, "the user pressed stop");
}

TEST(Misuse, ARankThatNeverCallsReadyIsNamed) {
  const auto outcomes = run(
      3, int8,
      [](Session& session, int rank) {
        auto& values = memory(100000);
        const TensorId id = session.add("w", view(values.data(), 100000));
        if (rank == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1500));
          return;
        }
        session.ready(id);
        session.finish();
      },
      Threading::background, std::chrono::milliseconds(500));
  EXPECT_TRUE(outcomes[0].threw && outcomes[1].threw);
  // Living ranks may be late too.
  EXPECT_THAT(outcomes[0].message + outcomes[1].message, ::testing::HasSubstr(": rank 2 is silent"));
}

TEST(Misuse, ADestroyedSessionEndsTheOthers) {
  const auto outcomes = run(2, int8, [](Session& session, int rank) {
    auto& values = memory(100000);
    const TensorId a = session.add("a", view(values.data(), 50000));
    const TensorId b = session.add("b", view(values.data() + 50000, 50000));
    session.ready(b);
    if (rank == 0) {
      return;  // the rank leaves in the middle of the step
    }
    session.ready(a);
    session.finish();
  });
  EXPECT_TRUE(outcomes[1].threw);
  EXPECT_NE(outcomes[1].message.find("rank 0"), std::string::npos) << outcomes[1].message;
}

TEST(Faults, ACorruptedFrameEndsTheStepOnEveryRank) {
  auto world = make_inproc_world(3);
  world[1] = transport::make_faulty(world[1], {{.kind = transport::Fault::Kind::corrupt, .nth = 6, .offset = 100}});
  const auto errors = run_ranks_catching(std::move(world), [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, Policy(), {.timeout = std::chrono::seconds(20), .checksum = true});
    add_all(session, gradients);
    for (int i = 0; i < 3; ++i) {
      for (const Gradient& gradient : gradients) {
        session.ready(gradient.id);
      }
      session.finish();
    }
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      EXPECT_TRUE(e.code() == ErrorCode::corrupt || e.code() == ErrorCode::aborted) << e.what();
      EXPECT_NE(std::string(e.what()).find("from rank 1"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace gradwire::test

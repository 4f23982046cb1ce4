// Tests the behaviour of Session that a training loop relies on.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/sanitizers.hpp"
#include "model.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/faulty_transport.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

#ifdef GRADWIRE_SANITIZED
constexpr int kWorlds[] = {1, 3};
#else
constexpr int kWorlds[] = {1, 2, 3, 5};
#endif

TEST(Session, EveryGradientBecomesTheMean) {
  for (const Threading threading : kThreading) {
    for (const int world : kWorlds) {
      for (const char* codec : {"int8", "exact"}) {
        SCOPED_TRACE(std::string(codec) + " world " + std::to_string(world) + " threading " +
                     std::to_string(static_cast<int>(threading)));
        run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
          auto gradients = make_gradients();
          Session session(transport, Policy::uniform(codec), {.threading = threading});
          add_all(session, gradients);
          std::mt19937 random(static_cast<unsigned>(transport->rank()));
          for (std::uint64_t step = 0; step < 4; ++step) {
            fill(gradients, transport->rank(), step);
            std::vector<std::size_t> order(gradients.size());
            for (std::size_t i = 0; i < order.size(); ++i) {
              order[i] = i;
            }
            std::shuffle(order.begin(), order.end(), random);  // a different order on each rank
            for (const std::size_t t : order) {
              session.ready(gradients[t].id);
            }
            session.finish();
            EXPECT_LE(error_against(gradients, step, mean_factor(world)),
                      codec == std::string("exact") || world == 1 ? 1e-6 : 0.02);
          }
          EXPECT_EQ(session.step(), 4U);
        });
      }
    }
  }
}

TEST(Session, RanksAreBitIdenticalAndTheDebugHashAgrees) {
  std::vector<std::vector<float>> results(4);
  run_ranks(4, [&](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, Policy(), {.compare_ranks_every = 1});
    add_all(session, gradients);
    for (std::uint64_t step = 0; step < 5; ++step) {
      fill(gradients, transport->rank(), step);
      for (const Gradient& gradient : gradients) {
        session.ready(gradient.id);
      }
      session.finish();
    }
    for (const Gradient& gradient : gradients) {
      auto& result = results[static_cast<std::size_t>(transport->rank())];
      result.insert(result.end(), gradient.values.begin(), gradient.values.end());
    }
  });
  for (const auto& result : results) {
    EXPECT_TRUE(result == results[0]);
  }
}

// A byte of the second hop's frame changes on its way to rank 1, and no checksum notices it.
TEST(Session, TheDebugHashFindsARankThatDiffers) {
  auto world = make_inproc_world(2);
  const std::uint64_t agreement_sends = 2;  // sizes and texts of the plan's fingerprint
  world[0] = transport::make_faulty(
      world[0], {{.kind = transport::Fault::Kind::corrupt, .nth = agreement_sends + 1, .offset = 32 + 400}});
  const auto errors = run_ranks_catching(std::move(world), [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> gradient(8192, 1.0F);
    Session session(transport, Policy::uniform("exact", Algorithm::two_shot),
                    {.checksum = false, .compare_ranks_every = 1});
    session.ready(session.add("w", view(gradient.data(), gradient.size())));
    session.finish();
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("differ from rank 0's on rank(s) 1"), std::string::npos) << e.what();
    }
  }
}

TEST(Session, WeightsZerosAndOtherAddresses) {
  for (const Threading threading : kThreading) {
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      std::vector<float> a(5000);
      std::vector<float> b(100);
      std::vector<float> moved(5000);
      Session session(transport, Policy::uniform("exact"), {.threading = threading});
      const TensorId id_a = session.add("a", view(a.data(), a.size()));
      const TensorId id_b = session.add("b", view(b.data(), b.size()));
      for (int step = 0; step < 3; ++step) {
        session.set_weight(rank + 1);  // 1, 2, 3: sum 6
        std::fill(moved.begin(), moved.end(), static_cast<float>(rank));
        std::fill(b.begin(), b.end(), 60.0F);
        session.ready(id_a, view(moved.data(), moved.size()));
        rank == 1 ? session.ready_zero(id_b) : session.ready(id_b);
        session.finish();
        EXPECT_FLOAT_EQ(moved[4999], (0 * 1 + 1 * 2 + 2 * 3) / 6.0F);
        EXPECT_EQ(a[0], 0.0F);
        EXPECT_FLOAT_EQ(b[50], 60.0F * 4 / 6);  // rank 1's share is zero
      }
    });
  }
}

TEST(Session, NoSyncAccumulatesLocally) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> gradient(64, 0.0F);
    Session session(transport, Policy::uniform("exact"));
    const TensorId id = session.add("w", view(gradient.data(), gradient.size()));
    const auto backward = [&] {
      for (float& value : gradient) {
        value += static_cast<float>(transport->rank());
      }
      session.ready(id);
    };
    {
      const auto scope = session.no_sync();
      backward();
      EXPECT_THROW(session.finish(), Error);
    }
    EXPECT_EQ(transport->counters().messages_sent, 0U);
    backward();
    session.finish();
    EXPECT_FLOAT_EQ(gradient[0], 1.0F);  // mean of 0 and 2
  });
}

TEST(Session, BroadcastStartsEveryRankAlike) {
  run_ranks(3, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> a(70000, static_cast<float>(transport->rank()));
    std::vector<double> b(3, transport->rank() * 2.0);
    Session session(transport, Policy());
    const std::vector<View> values{view(a.data(), a.size()), view(b.data(), b.size())};
    session.broadcast(values, 2);
    EXPECT_EQ(a[69999], 2.0F);
    EXPECT_EQ(b[0], 4.0);
    session.broadcast(view(a.data(), 10));
  });
}

TEST(Session, ReadyFromManyThreads) {
  run_ranks(3, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, Policy());
    add_all(session, gradients);
    for (std::uint64_t step = 0; step < 10; ++step) {
      fill(gradients, transport->rank(), step);
      std::vector<std::thread> threads;
      for (std::size_t first = 0; first < 3; ++first) {
        threads.emplace_back([&, first] {
          for (std::size_t t = first; t < gradients.size(); t += 3) {
            session.ready(gradients[t].id);
          }
        });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
      session.finish();
      EXPECT_LE(error_against(gradients, step, 2), 0.02);
    }
  });
}

TEST(Session, RulesSmallTensorsAndStatisticsByGroup) {
  const Policy policy = Policy::parse(R"(version = 1
[[rule]]
match = "*.bias"
codec = "exact"
[[rule]]
match = "embed.*"
codec = "fp16"
)");
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, policy, {.measure_error = true});
    add_all(session, gradients);
    const std::uint64_t sent_before = transport->counters().bytes_sent;
    for (std::uint64_t step = 0; step < 2; ++step) {
      fill(gradients, transport->rank(), step);
      for (const Gradient& gradient : gradients) {
        session.ready(gradient.id);
      }
      session.finish();
    }
    const SessionStatistics statistics = session.statistics();
    EXPECT_EQ(statistics.steps, 2U);
    EXPECT_EQ(statistics.all().elements, 2 * 210682U);
    bool saw_exact = false;
    bool saw_fp16 = false;
    bool saw_int8 = false;
    for (const auto& group : statistics.groups) {
      saw_exact = saw_exact || (group.codec == "exact" && !group.compressed && group.totals.ratio() <= 1);
      saw_fp16 = saw_fp16 || (group.codec == "fp16" && group.totals.ratio() > 1.9 && group.totals.ratio() < 2.01);
      saw_int8 = saw_int8 || (group.codec == "int8" && group.totals.ratio() > 3.7);
      if (group.compressed && group.totals.elements > 1) {
        EXPECT_GT(group.totals.relative_error(), 0) << group.name;
        EXPECT_LT(group.totals.relative_error(), 0.02) << group.name;
      }
    }
    EXPECT_TRUE(saw_exact && saw_fp16 && saw_int8) << statistics.to_text();
    EXPECT_LT(statistics.all().bytes_sent, transport->counters().bytes_sent - sent_before);  // control and exact copies
    const auto json = nlohmann::json::parse(statistics.to_json());
    EXPECT_GT(json.at("ratio_compressed").get<double>(), 2.0);
    EXPECT_EQ(json.at("groups").size(), statistics.groups.size());
    EXPECT_NE(session.explain().find("embed.weight"), std::string::npos);
    EXPECT_EQ(session.fingerprint().size(), 16U);
  });
}

TEST(Session, TicketsTellWhenAGradientIsReduced) {
  for (const Threading threading : kThreading) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      Policy policy = Policy::uniform("exact");
      policy.bucket_bytes = 64 << 10;
      std::vector<float> first(40000, 1.0F + static_cast<float>(transport->rank()));
      std::vector<float> last = first;
      Session session(transport, policy, {.threading = threading});
      const TensorId first_id = session.add("first", view(first.data(), first.size()));
      const TensorId last_id = session.add("last", view(last.data(), last.size()));
      for (int step = 0; step < 3; ++step) {
        std::fill(last.begin(), last.end(), 1.0F + static_cast<float>(transport->rank()));
        const Ticket ticket = session.ready(last_id);
        session.wait(ticket);  // long before finish(): the first layer's gradient is not even ready
        EXPECT_TRUE(session.done(ticket));
        EXPECT_FLOAT_EQ(last[39999], 1.5F);
        const Ticket other = session.ready(first_id);
        session.finish();
        EXPECT_TRUE(session.done(other));
        EXPECT_TRUE(session.done(ticket));
      }
      const Ticket early = session.ready(first_id);
      EXPECT_FALSE(session.done(early));
      EXPECT_THROW(session.wait(early), Error);  // "last" comes before it and is not ready
      session.ready(last_id);
      session.finish();
      session.set_no_sync(true);
      EXPECT_TRUE(session.done(session.ready(first_id)));
    });
  }
}

// The results of such tickets would never come.
TEST(Session, TicketsOfOtherStepsAndSessionsAreRefused) {
  for (const Threading threading : kThreading) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      auto gradients = make_gradients();
      Session session(transport, Policy::uniform("exact"), {.threading = threading});
      add_all(session, gradients);
      const auto refused = [&](const Ticket& ticket) {
        for (const auto& call : {std::function([&] { session.wait(ticket); }),
                                 std::function([&] { static_cast<void>(session.done(ticket)); })}) {
          const Error error = error_of(call);
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
          EXPECT_NE(std::string(error.what()).find("ready() of this session returned"), std::string::npos)
              << error.what();
        }
      };
      auto others = make_gradients();
      Session other(make_inproc_world(1)[0], Policy::uniform("exact"), {.threading = threading});
      add_all(other, others);
      refused({.step = 0, .bucket = 0});  // there are no tickets yet
      session.wait({});
      for (int step = 0; step < 2; ++step) {
        fill(gradients, transport->rank(), 0);
        std::vector<Ticket> tickets;
        for (const auto& gradient : gradients) {
          tickets.push_back(session.ready(gradient.id));
        }
        const std::uint32_t number = tickets[0].session;
        refused({.step = tickets[0].step + 1, .bucket = tickets[0].bucket, .session = number});
        refused({.step = tickets[0].step, .bucket = 1000, .session = number});
        refused({.step = 0, .bucket = 1000, .session = number});
        // The ticket has the same step and bucket as one of this session: a wait would end, but for the wrong result.
        fill(others, 0, 0);
        for (const auto& gradient : others) {
          refused(other.ready(gradient.id));
        }
        other.finish();
        session.wait(tickets[0]);
        session.finish();
        EXPECT_TRUE(session.done(tickets[0]));
      }
      session.set_no_sync(true);
      EXPECT_EQ(error_of([&] { session.ready(static_cast<TensorId>(gradients.size())); }).code(),
                ErrorCode::invalid_argument);
      session.set_no_sync(false);
      session.ready(gradients[0].id);
      refused({.step = 3, .bucket = 0, .session = session.ready(gradients[1].id).session});
      for (std::size_t i = 2; i < gradients.size(); ++i) {
        session.ready(gradients[i].id);
      }
      session.finish();
    });
  }
}

#if GRADWIRE_ADDRESS_SANITIZER
// The gradients are freed before the session, as when they are declared after it.
TEST(Session, FreedGradientsAreNamed) {
  const auto transport = make_inproc_world(1)[0];
  auto gone = std::make_unique<std::vector<float>>(1000);
  std::vector<float> there(1000);
  Session session(transport, Policy::uniform("exact"), {.threading = Threading::serialized});
  const TensorId first = session.add("gone", view(gone->data(), gone->size()));
  const TensorId second = session.add("there", view(there.data(), there.size()));
  gone.reset();
  EXPECT_NE(std::string(error_of([&] { session.ready(first); }).what()).find("the memory of \"gone\" has been freed"),
            std::string::npos);
  static_cast<void>(second);
}

TEST(SessionDeathTest, ASessionThatOutlivesAGradientOfItsStepSaysSo) {
  EXPECT_DEATH(
      {
        auto gone = std::make_unique<std::vector<float>>(1000);
        std::vector<float> there(1000);
        Session session(make_inproc_world(1)[0], Policy::uniform("exact"), {.threading = Threading::serialized});
        const TensorId first = session.add("gone", view(gone->data(), gone->size()));
        session.add("there", view(there.data(), there.size()));
        session.ready(first);
        gone.reset();
      },
      "after the gradient \"gone\", which it may still read and write; declare gradients before the session");
}
#endif

TEST(Session, NothingToReduce) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Session session(transport, Policy());
    session.finish();
    EXPECT_EQ(session.step(), 1U);
  });
}

TEST(Session, MovesLikeAValue) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> gradient(10, static_cast<float>(transport->rank()));
    Session first(transport, Policy::uniform("exact"));
    const TensorId id = first.add("w", view(gradient.data(), 10));
    Session second(std::move(first));
    second.ready(id);
    second.finish();
    EXPECT_FLOAT_EQ(gradient[0], 0.5F);
  });
}

}  // namespace
}  // namespace gradwire::test

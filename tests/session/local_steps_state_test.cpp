// Tests sync = { every = N }: where local steps begin, what is saved of them, and what is refused.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <sstream>

#include "tests/support/ranks.hpp"
#include "trained_model.hpp"

namespace gradwire::test {
namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
    return "nothing was thrown";
  } catch (const Error& error) {
    return error.what();
  }
}

// Residuals of gradients end with the last step that reduces gradients.
TEST(LocalStepsState, NothingIsLostWhereTheyBegin) {
  for (const char* sync : {"{ every = 3, from_step = 5 }", "{ every = 16, outer = {}, from_step = 5 }"}) {
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      TrainedModel model;
      std::vector<double> wanted;
      std::vector<double> got;
      Session session(transport, policy_of("topk(2%)+int8", sync));
      model.add_to(session);
      for (std::uint64_t step = 0; step < 5; ++step) {
        for (int rank = 0; rank < 3; ++rank) {
          model.compute_gradients(rank, step);
          add(wanted, model.gradients(), 1.0 / 3);
        }
        model.compute_gradients(transport->rank(), step);
        model.reduce(session);
        add(got, model.gradients(), 1);
        EXPECT_EQ(session.residual_bytes() == 0, step == 4) << step;
      }
      EXPECT_LE(relative_error(got, wanted), 1e-6);
    });
  }
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Steps 4 and 5 have NaN, so step 6 carries the residuals that step 4 should have carried, and local steps begin with
// step 7. This holds whether all steps with NaN are skipped, or only those that must not lose residuals. Between these
// steps the session is saved, and the loaded one goes on like the original. Mutations tried: the step that carries the
// residuals does not look for NaN first; it is not postponed; the postponement is not saved.
TEST(LocalStepsState, ASkippedStepBeforeLocalStepsIsMadeUpFor) {
  for (const char* sync : {"{ every = 3, from_step = 5 }", "{ every = 16, outer = {}, from_step = 5 }"}) {
    for (const Nonfinite nonfinite : {Nonfinite::skip, Nonfinite::propagate}) {
      const bool averages = std::string(sync).find("outer") == std::string::npos;
      run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
        SessionOptions options;
        options.nonfinite = nonfinite;
        auto session = std::make_unique<Session>(transport, policy_of("topk(2%)+int8", sync), options);
        TrainedModel model;
        model.add_to(*session);
        std::vector<double> wanted;
        std::vector<double> got;
        for (std::uint64_t step = 0; step < 26; ++step) {
          const bool bad = step == 4 || step == 5;
          const bool local = step > 6;
          for (int rank = 0; rank < 3 && !bad && !local; ++rank) {
            model.compute_gradients(rank, step);
            add(wanted, model.gradients(), 1.0 / 3);
          }
          model.compute_gradients(transport->rank(), step);
          if (bad && transport->rank() == 1) {
            model.tensors[1].gradient[3] = kNaN;
          }
          const TrainedModel before = model;
          for (auto& tensor : model.tensors) {
            session->ready(tensor.id);
          }
          EXPECT_EQ(session->finish().skipped, bad) << step;
          EXPECT_EQ(model.same_gradients(before) || bad, local || bad) << step;
          const bool syncs =
              averages ? step == 10 || step == 13 || step == 16 || step == 19 || step == 22 || step == 25 : step == 23;
          EXPECT_EQ(model.parameters() != before.parameters(), syncs) << sync << step;
          if (!bad && !local) {
            add(got, model.gradients(), 1);
          }
          if (step < 10) {
            EXPECT_EQ(session->residual_bytes() == 0, step >= 6) << step;
          }
          if (local) {
            model.optimize();
          }
          if (step == 5) {
            std::stringstream stream;
            session->save(stream);
            session.reset();  // a transport serves one session at a time
            session = std::make_unique<Session>(transport, policy_of("topk(2%)+int8", sync), options);
            model.add_to(*session);
            session->load(stream);
          }
        }
        EXPECT_LE(relative_error(got, wanted), 1e-6) << sync;
        session->flush();
        model.compute_gradients(transport->rank(), 26);
        model.reduce(*session);
        EXPECT_EQ(session->residual_bytes(), 0U);
        std::stringstream stream;
        session->save(stream);
        session.reset();
        Session resumed(transport, policy_of("topk(2%)+int8", sync), options);
        model.add_to(resumed);
        EXPECT_NO_THROW(resumed.load(stream));
      });
    }
  }
}

// After sync_parameters(), a loaded session knows that nothing has moved. Mutation tried: this is not saved.
TEST(LocalStepsState, AStateKnowsThatParametersAreSynchronised) {
  for (const bool synced : {true, false}) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      const Policy policy = policy_of("exact", "{ every = 16, outer = {} }");
      auto session = std::make_unique<Session>(transport, policy);
      TrainedModel model;
      model.add_to(*session);
      for (std::uint64_t step = 0; step < 20; ++step) {
        model.train(*session, step);
      }
      if (synced) {
        session->sync_parameters();
      }
      std::stringstream stream;
      session->save(stream);
      session.reset();
      Session resumed(transport, policy);
      model.add_to(resumed);
      resumed.load(stream);
      const auto before = model.parameters();
      resumed.sync_parameters();
      EXPECT_EQ(before == model.parameters(), synced);
    });
  }
}

// Mutations tried: momentum of the outer optimizer is not saved; the anchor is not saved.
TEST(LocalStepsState, OuterMomentumSurvivesSavingAndLoading) {
  const char* const sync = "{ every = 16, outer = {} }";
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    TrainedModel model;
    Session session(transport, policy_of("int4", sync));
    model.add_to(session);
    for (std::uint64_t step = 0; step < 40; ++step) {
      model.train(session, step);
    }
    std::stringstream stream;
    session.save(stream);
    TrainedModel copy = model;
    Session resumed(transport, policy_of("int4", sync));
    copy.add_to(resumed);
    resumed.load(stream);
    for (std::uint64_t step = 40; step < 70; ++step) {
      model.train(session, step);
    }
    for (std::uint64_t step = 40; step < 70; ++step) {
      copy.train(resumed, step);
    }
    EXPECT_TRUE(model.values() == copy.values());
  });
}

TEST(LocalStepsState, StatesOfAnotherModeMustBeFlushed) {
  const auto saved = [](const char* sync, std::uint64_t steps, bool flush, const char* codec = "int4") {
    std::string bytes;
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      TrainedModel model;
      Session session(transport, policy_of(codec, sync));
      model.add_to(session);
      for (std::uint64_t step = 0; step < steps; ++step) {
        if (flush && step + 1 == steps) {
          session.flush();
        }
        model.train(session, step);
      }
      std::stringstream stream;
      session.save(stream);
      if (transport->rank() == 0) {
        bytes = stream.str();
      }
    });
    return bytes;
  };
  const auto load = [](const char* sync, const std::string& bytes) {
    auto ranks = make_inproc_world(2);
    TrainedModel model;
    Session session(ranks[0], policy_of("int4", sync));
    model.add_to(session);
    std::stringstream stream(bytes);
    return error_of([&] { session.load(stream); });
  };
  const char* const kOuter = "{ every = 16, outer = {} }";
  EXPECT_NE(
      load("\"step\"", saved(kOuter, 20, false)).find("are of parameter changes, which sync step does not reduce"),
      std::string::npos);
  EXPECT_NE(load(kOuter, saved("\"step\"", 3, false)).find("are of gradients, which sync every 16"), std::string::npos);
  EXPECT_EQ(load("\"step\"", saved(kOuter, 20, true)), "nothing was thrown");
  EXPECT_EQ(load(kOuter, saved("\"step\"", 3, true)), "nothing was thrown");
  // Late gradients are not parameters.
  const char* const kAsync = "{ async = true, staleness = 1 }";
  const std::string late = saved(kAsync, 3, false, "exact");
  const std::string flushed = saved(kAsync, 3, true, "exact");
  for (const char* sync : {"{ every = 8 }", kOuter}) {
    EXPECT_NE(load(sync, late).find("results on their way of \"c\" are of gradients, which sync every"),
              std::string::npos)
        << load(sync, late);
    EXPECT_EQ(load(sync, flushed), "nothing was thrown");
    EXPECT_EQ(load(kAsync, saved(sync, 20, true)), "nothing was thrown");
  }
  EXPECT_NE(load(kAsync, saved(kOuter, 20, false)).find("are of parameter changes, which sync async"),
            std::string::npos);
  EXPECT_EQ(load("{ every = 8, from_step = 10 }", late), "nothing was thrown") << "delivered before local steps begin";
}

TEST(LocalStepsState, BadInputIsNamed) {
  auto world = make_inproc_world(1);
  std::vector<float> values(10);
  std::vector<float> others(10);
  Session session(world[0], Policy::parse("[[rule]]\nmatch = \"embed*\"\nsync = { rows = true, staleness = 4 }\n"
                                          "[defaults]\nsync = { every = 16, outer = {} }\nsmall = \"off\""));
  const View all = view(values.data(), values.size());
  const View parameter = view(others.data(), others.size());
  const View fewer = view(values.data(), 9);
  EXPECT_NE(error_of([&] { session.add("embed.weight", all, parameter); }).find("make a gradwire::Table"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { session.add("w", all, fewer); }).find("the parameter of \"w\" is f32 x 9, its gradient f32 x 10"),
      std::string::npos);
  EXPECT_NE(error_of([&] { session.add("w", all, parameter, {fewer}); }).find("state 1 of \"w\" is f32 x 9"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              session.add("w", all, View{nullptr, 10, DType::f32});
            }).find("null data"),
            std::string::npos);
  const TensorId id = session.add("w", all, parameter);
  EXPECT_NE(error_of([&] { session.set_loss_scale(2), session.ready(id); }).find("unscale gradients before"),
            std::string::npos);
}

// The same holds if local steps begin later, and if ranks diverge in the steps before. Mutations tried: parameters are
// compared only in the first step, or only where local steps begin.
TEST(LocalStepsState, RanksThatStartDifferentlyUnderOuterMomentumAreToldSo) {
  struct Case {
    const char* sync;
    std::uint64_t moved_before;  // by this step, on rank 1
    std::uint64_t told_in;
  };
  for (const Case& c :
       {Case{"{ every = 16, outer = {} }", 0, 0}, Case{"{ every = 16, outer = {}, from_step = 3 }", 0, 0},
        Case{"{ every = 16, outer = {}, from_step = 3 }", 2, 3}}) {
    const auto errors = run_ranks_catching(make_inproc_world(2), [&](const std::shared_ptr<Transport>& transport) {
      TrainedModel model;
      Session session(transport, policy_of("int8", c.sync));
      model.add_to(session);
      for (std::uint64_t step = 0; step <= c.told_in; ++step) {
        model.tensors[1].parameter[5] += step == c.moved_before ? static_cast<float>(transport->rank()) : 0.0F;
        EXPECT_EQ(session.step(), step);
        model.train(session, step);
      }
    });
    for (const auto& error : errors) {
      ASSERT_TRUE(error) << c.sync;
      EXPECT_NE(error_of([&] { std::rethrow_exception(error); }).find("differ between ranks 0 and 1 before the first"),
                std::string::npos)
          << error_of([&] { std::rethrow_exception(error); });
    }
  }
}

}  // namespace
}  // namespace gradwire::test

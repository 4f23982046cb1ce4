// Tests the two halves of finish() with a policy of the test's own: ranks vote on each step, and a rejected step is
// undone and made again by the next engine. The product has no such policy.
#include "session/engine/engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "model.hpp"
#include "session/host/bucket_runner.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using session::Engine;

constexpr int kRanks = 2;
constexpr std::uint64_t kSteps = 6;

std::unique_ptr<Engine> make_engine(std::shared_ptr<Transport> transport, bool undoable,
                                    const SessionOptions& options = {}) {
  return std::make_unique<Engine>(
      std::make_unique<session::BucketRunner>(std::move(transport), options),
      session::EngineSettings{.policy = Policy::parse("[defaults]\ncodec = \"int4\"\nerror_feedback = \"on\"\n"),
                              .options = options,
                              .parts = session::standard_parts(),
                              .undoable = undoable});
}

void add_to(Engine& engine, std::vector<Gradient>& gradients) {
  for (Gradient& gradient : gradients) {
    gradient.id = engine.add(gradient.name, view(gradient.values.data(), gradient.values.size()), {}, 0);
  }
}

void reduce(Engine& engine, std::vector<Gradient>& gradients, int rank, std::uint64_t number) {
  fill(gradients, rank, number);
  for (const Gradient& gradient : gradients) {
    engine.ready(gradient.id, nullptr, false);
  }
}

using Results = std::vector<std::vector<float>>;  // by step and tensor

Results run_undisturbed() {
  std::vector<Results> all(kRanks);
  run_ranks(kRanks, [&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    std::vector<Gradient> gradients = make_gradients();
    const auto engine = make_engine(transport, false);
    add_to(*engine, gradients);
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      reduce(*engine, gradients, rank, step);
      engine->finish();
      for (const Gradient& gradient : gradients) {
        all[static_cast<std::size_t>(rank)].push_back(gradient.values);
      }
    }
  });
  EXPECT_EQ(all[0], all[1]);
  return all[0];
}

// Mutations tried: take_over() forgets the step's number; the undone step counts for residuals.
TEST(Engine, AStepThatIsVotedDownIsMadeAgainByTheNextEngine) {
  const Results expected = run_undisturbed();
  std::vector<std::vector<std::shared_ptr<Transport>>> worlds;  // successive worlds
  for (std::uint64_t i = 0; i <= kSteps; ++i) {
    worlds.push_back(make_inproc_world(kRanks));
  }
  std::barrier vote(kRanks);
  std::vector<Results> all(kRanks);
  const auto run = [&](std::size_t rank) {
    std::size_t world = 0;
    std::vector<Gradient> gradients = make_gradients();
    auto engine = make_engine(worlds[world][rank], true);
    add_to(*engine, gradients);
    bool voted_down = false;
    for (std::uint64_t step = 0; step < kSteps;) {
      reduce(*engine, gradients, static_cast<int>(rank), step);
      const session::StepEnd::Finishing finishing = engine->step_end.prepare();
      vote.arrive_and_wait();
      const bool passes = step % 2 == 0 || voted_down;  // every second step is made twice
      voted_down = !passes;
      if (!passes) {
        engine->undo(Error(ErrorCode::aborted, "voted down"));
        auto next = make_engine(worlds[++world][rank], true);
        next->take_over(*engine, [&](const session::SavedState& /*held*/) {
          exchange::ResidualStore residuals;
          for (const auto& kept : engine->runner->held().save_residuals(*engine->plan)) {
            residuals.add(kept.key, kept.range.offset, kept.range.values, 1.0F);
          }
          return residuals;
        });
        engine = std::move(next);
        EXPECT_EQ(engine->step.number(), step);
        continue;
      }
      engine->runner->undo()->commit();
      EXPECT_EQ(engine->step_end.commit(finishing).step, step);
      for (const Gradient& gradient : gradients) {
        all[rank].push_back(gradient.values);
      }
      ++step;
    }
    EXPECT_EQ(world, kSteps / 2);
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], expected) << "results are equal bit for bit";
}

// finish() reports a peer's end, since the layer above can react to it there.
TEST(Engine, OneThatIsUndoableLeavesItToFinishToReportAPeersEnd) {
  for (const bool undoable : {false, true}) {
    std::vector<std::shared_ptr<Transport>> world = make_inproc_world(kRanks);
    std::vector<Gradient> gradients = make_gradients();
    const auto engine = make_engine(world[0], undoable);
    add_to(*engine, gradients);
    world[1]->abort(Error(ErrorCode::aborted, "it has ended", ErrorCause::world));
    fill(gradients, 0, 0);
    const auto calls = [&] {
      std::vector<Ticket> tickets;
      for (const Gradient& gradient : gradients) {
        tickets.push_back(engine->ready(gradient.id, nullptr, false));
      }
      for (const Ticket& ticket : tickets) {
        engine->wait(ticket);
      }
    };
    if (undoable) {
      EXPECT_NO_THROW(calls());
    } else {
      EXPECT_THROW(calls(), Error);
    }
    EXPECT_THROW(engine->finish(), Error);
  }
}

// Without a thread of the session, done() itself communicates. The ranks make one step before, because ready() would
// wait for the other rank to agree on the plan. Mutation tried: done() communicates outside of the try.
TEST(Engine, OneThatIsUndoableLeavesItToFinishToReportWhatDoneSees) {
  for (const bool undoable : {false, true}) {
    std::vector<std::shared_ptr<Transport>> world = make_inproc_world(kRanks);
    std::vector<std::vector<Gradient>> gradients(kRanks);
    std::vector<std::unique_ptr<Engine>> engines(kRanks);
    const auto first_step = [&](std::size_t rank) {
      gradients[rank] = make_gradients();
      engines[rank] = make_engine(world[rank], undoable, {.threading = Threading::serialized});
      add_to(*engines[rank], gradients[rank]);
      reduce(*engines[rank], gradients[rank], static_cast<int>(rank), 0);
      engines[rank]->finish();
    };
    std::thread other([&] { first_step(1); });
    first_step(0);
    other.join();
    Engine& engine = *engines[0];
    std::vector<Ticket> tickets;
    for (const Gradient& gradient : gradients[0]) {
      tickets.push_back(engine.ready(gradient.id, nullptr, false));
    }
    world[1]->abort(Error(ErrorCode::aborted, "it has ended", ErrorCause::world));
    if (undoable) {
      EXPECT_NO_THROW(static_cast<void>(engine.done(tickets.back())));
    } else {
      EXPECT_THROW(static_cast<void>(engine.done(tickets.back())), Error);
    }
    EXPECT_THROW(engine.finish(), Error);
  }
}

// ready() has returned early for tensors of earlier buckets; a wait without them is normally refused. Mutation tried:
// wait() still looks at them.
TEST(Engine, AWaitForAVoidStepReturnsOnlyWhereAPeerMayHaveEnded) {
  for (const ErrorCause cause : {ErrorCause::world, ErrorCause::rank}) {
    std::vector<std::shared_ptr<Transport>> world = make_inproc_world(kRanks);
    std::vector<Gradient> gradients = make_gradients();
    const auto engine = make_engine(world[0], true);
    add_to(*engine, gradients);
    fill(gradients, 0, 0);
    const Ticket first = engine->ready(gradients[0].id, nullptr, false);  // a tensor of the last bucket
    EXPECT_THROW(engine->wait(first), Error) << "its bucket has other tensors, or follows other buckets";
    engine->give_up(Error(ErrorCode::aborted, "by hand", cause));
    if (cause == ErrorCause::world) {
      EXPECT_EQ(engine->ready(gradients[1].id, nullptr, false).bucket, Ticket::kNothing);
      EXPECT_NO_THROW(engine->wait(first));
      EXPECT_TRUE(engine->done(first));
    } else {
      EXPECT_THROW(engine->ready(gradients[1].id, nullptr, false), Error);
      EXPECT_THROW(engine->wait(first), Error);
      EXPECT_THROW(static_cast<void>(engine->done(first)), Error);
    }
  }
}

}  // namespace
}  // namespace gradwire::test

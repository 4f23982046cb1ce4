// Sessions that keep most of their residuals in a file: the same results and saves as in memory, steps that are made
// again, and files that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <csignal>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "elastic_job.hpp"
#include "memory/file_requests.hpp"
#include "memory/process_pool.hpp"
#include "model.hpp"
#include "plan/memory_use.hpp"
#include "session/state/state_file.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_file_access.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

std::string with_store(const std::string& rules, const std::string& residuals) {
  return "version = 1\n[defaults]\n" + std::string(residuals.empty() ? "" : "residuals = { " + residuals + " }\n") +
         rules;
}

std::string stored(const std::filesystem::path& folder, const std::string& more = "") {
  return more + "store = \"file:" + folder.string() + "\", memory = \"96KiB\"";
}

struct Trained {
  std::vector<std::vector<Gradient>> results;  // of each rank
  std::vector<std::string> states;
};

using EachStep = std::function<void(Session&, std::uint64_t step)>;

Trained train(const std::string& policy, const std::vector<std::uint32_t>& nodes, std::uint64_t steps,
              const EachStep& each = nullptr, const std::vector<std::string>* resumed = nullptr,
              std::uint64_t first = 0) {
  const std::size_t world = nodes.size();
  Trained trained{.results = std::vector<std::vector<Gradient>>(world), .states = std::vector<std::string>(world)};
  run_ranks(make_inproc_world(static_cast<int>(world), nodes), [&](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    const auto rank = static_cast<std::size_t>(transport->rank());
    Session session(transport, Policy::parse(policy));
    add_all(session, gradients);
    if (resumed != nullptr) {
      std::istringstream state((*resumed)[rank]);
      session.load(state);
    }
    for (std::uint64_t step = first; step < steps; ++step) {
      if (each) {
        each(session, step);
      }
      fill(gradients, session.rank(), step);
      for (const Gradient& gradient : gradients) {
        session.ready(gradient.id);
      }
      session.finish();
    }
    std::ostringstream state;
    session.save(state);
    trained.states[rank] = state.str();
    trained.results[rank] = std::move(gradients);
  });
  return trained;
}

void expect_equal(const Trained& a, const Trained& b) {
  ASSERT_EQ(a.results.size(), b.results.size());
  for (std::size_t rank = 0; rank < a.results.size(); ++rank) {
    for (std::size_t t = 0; t < a.results[rank].size(); ++t) {
      EXPECT_EQ(a.results[rank][t].values, b.results[rank][t].values) << "rank " << rank << ", tensor " << t;
    }
    EXPECT_TRUE(a.states[rank] == b.states[rank]) << "what rank " << rank << " saved differs";
  }
}

// Mutation tried: a page that was written behind is taken for one that holds zeros.
TEST(SpilledSession, ResultsAndSavesAreThoseOfMemory) {
  struct Case {
    const char* rules;
    std::vector<std::uint32_t> nodes;
    const char* dtype = "";
  };
  const Case cases[] = {
      {"codec = \"int4\"\n", {0, 1}},
      {"codec = \"topk(2%)+int8\"\n[bucket]\nbytes = \"256KiB\"\n", {0, 1, 2}, "dtype = \"bf16\", "},
      {"codec = \"int4\"\nalgorithm = \"hierarchical\"\ndecay = 0.9\n", {0, 0, 1, 1}, "dtype = \"int8\", "},
      {"codec = \"int4\"\nalgorithm = \"hierarchical\"\ndecay = 0.9\n", {0, 0, 1, 1}},
      {"codec = \"int2\"\nwarmup = [ { until_step = 2, codec = \"exact\" }, { until_step = 5, codec = \"int4\" } ]\n",
       {0, 1}},
  };
  const auto flushes = [](Session& session, std::uint64_t step) {
    if (step == 6) {
      session.flush();
    }
  };
  for (const Case& one : cases) {
    const std::string in_memory = std::string(one.dtype).substr(0, std::string_view(one.dtype).find(','));
    const Trained wanted = train(with_store(one.rules, in_memory), one.nodes, 9, flushes);
    for (const char* backend : {"io_uring", "threads"}) {
      if (std::string(backend) == "io_uring" && memory::make_ring(STDIN_FILENO, 1) == nullptr) {
        continue;  // this system does not allow it
      }
      SCOPED_TRACE(std::string(backend) + ": " + one.rules);
      ::setenv("GRADWIRE_FILE_IO", backend, 1);
      const ScratchFolder folder;
      expect_equal(train(with_store(one.rules, stored(folder.path(), one.dtype)), one.nodes, 9, flushes), wanted);
      EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    }
  }
  ::unsetenv("GRADWIRE_FILE_IO");
}

TEST(SpilledSession, GoesOnFromASave) {
  const ScratchFolder folder;
  const std::string spilled = with_store("codec = \"int4\"\n", stored(folder.path()));
  const std::string in_memory = with_store("codec = \"int4\"\n", "");
  const Trained whole = train(in_memory, {0, 1}, 8);
  const Trained half = train(spilled, {0, 1}, 4);
  expect_equal(train(spilled, {0, 1}, 8, nullptr, &half.states, 4), whole);
  expect_equal(train(in_memory, {0, 1}, 8, nullptr, &half.states, 4), whole);
}

// A rank leaves during step 3, so that the others make the step again. Mutation tried: undo() keeps what was written.
TEST(SpilledSession, AStepThatIsMadeAgainFindsTheResidualsOfBeforeIt) {
  const ScratchFolder folder;
  for (const char* codec : {"int4", "topk(0.05)+int8"}) {
    SCOPED_TRACE(codec);
    const auto fates = [&](const std::string& residuals) {
      return run({.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"" + std::string(codec) + "\"\n" + residuals +
                            "[elastic]\nreplicate = \"1 step\"\nreplicate_as = \"exact\"\n",
                  .dies_in = {{2, {3, 2}}},
                  .keeps_states = true});
    };
    const std::vector<Fate> spilled =
        fates("residuals = { store = \"file:" + folder.path().string() + "\", memory = \"64KiB\" }\n");
    const std::vector<Fate> plain = fates("");
    for (std::size_t who = 0; who < plain.size(); ++who) {
      EXPECT_EQ(spilled[who].dead, plain[who].dead);
      EXPECT_TRUE(spilled[who].parameters == plain[who].parameters) << who;
      EXPECT_TRUE(spilled[who].state == plain[who].state) << who;
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// The file of one rank is damaged, and every rank ends with its error. Mutation tried: what was read is not compared
// with what was written.
TEST(SpilledSession, ADamagedFileIsAnErrorOnEveryRank) {
  const ScratchFolder folder;
  std::atomic<bool> damaged = false;
  std::vector<std::string> messages(3);
  const std::string policy = with_store("codec = \"int4\"\n", stored(folder.path()));
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, Policy::parse(policy));
    add_all(session, gradients);
    try {
      for (std::uint64_t step = 0; step < 12; ++step) {
        if (step == 6 && session.rank() == 1 && !damaged.exchange(true)) {
          const std::vector<int> files = open_scratch_files(folder.path());
          EXPECT_EQ(files.size(), 3U);
          EXPECT_EQ(::ftruncate(files.front(), 0), 0);
          for (const int file : files) {
            ::close(file);
          }
        }
        fill(gradients, session.rank(), step);
        for (const Gradient& gradient : gradients) {
          session.ready(gradient.id);
        }
        session.finish();
      }
      ADD_FAILURE() << "rank " << session.rank() << " did not notice";
    } catch (const Error& error) {
      messages[static_cast<std::size_t>(session.rank())] = error.what();
    }
  });
  for (const std::string& message : messages) {
    EXPECT_THAT(message, AllOf(HasSubstr(folder.path().string()), HasSubstr("is not what was written there")));
  }
}

// A limit on the size of files stands in for the full disk. Every rank names the folder. Mutation tried: room is not
// reserved.
TEST(SpilledSession, AFullDiskIsAnErrorBeforeTheFirstStep) {
  const ScratchFolder folder;
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 512 << 10;
  const auto ignore = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::vector<std::string> messages(2);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, Policy::parse(with_store("codec = \"int4\"\n", stored(folder.path()))));
    add_all(session, gradients);
    try {
      for (const Gradient& gradient : gradients) {
        session.ready(gradient.id);
      }
      session.finish();
      ADD_FAILURE() << "there is room for a half of a megabyte";
    } catch (const Error& error) {
      messages[static_cast<std::size_t>(session.rank())] = error.what();
      EXPECT_EQ(session.residual_bytes(), 0U) << "the step has begun";
    }
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignore);
  EXPECT_THAT(messages, Each(AllOf(HasSubstr("may write files of 512KiB"), HasSubstr(folder.path().string()))));
}

// A save needs room for a copy of the residuals. Where there is none, it is refused before it copies anything, and the
// session goes on. Mutation tried: room is not reserved, and the save succeeds as long as pages fit into memory.
TEST(SpilledSession, ASaveWithoutRoomOnTheDiskIsRefusedAndLosesNothing) {
  const ScratchFolder folder;
  constexpr std::size_t kElements = 1U << 20;
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 6U << 20;  // the residuals take 4 MiB
  const auto ignore = std::signal(SIGXFSZ, SIG_IGN);
  const auto train_large = [&](const std::string& residuals, bool limited) {
    std::vector<std::string> states(2);
    std::barrier barrier(2);
    if (limited) {
      EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    }
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      Session session(transport, Policy::parse(with_store("codec = \"int4\"\nsecond_hop = \"exact\"\n", residuals)));
      std::vector<float> gradient(kElements);
      const TensorId id = session.add("large", view(gradient.data(), gradient.size()));
      const auto step = [&] {
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          gradient[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(session.rank())) % 101);
        }
        session.ready(id);
        session.finish();
      };
      step();
      if (limited) {
        std::ostringstream state;
        const Error error = error_of([&] { session.save(state); });
        EXPECT_THAT(error.what(), AllOf(HasSubstr("may write files of 6MiB"), HasSubstr(folder.path().string())));
        EXPECT_EQ(state.str(), "");
      }
      step();
      barrier.arrive_and_wait();
      EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
      barrier.arrive_and_wait();
      std::ostringstream state;
      session.save(state);
      states[static_cast<std::size_t>(session.rank())] = state.str();
    });
    return states;
  };
  EXPECT_EQ(train_large(stored(folder.path()), true) == train_large("", false), true);
  std::signal(SIGXFSZ, ignore);
}

// Residuals that exceed the limit of memory are loaded into the file, also those of several ranks' files. Mutation
// tried: load() does not say where residuals go.
TEST(SpilledSession, AStateThatDoesNotFitIntoMemoryIsLoaded) {
  constexpr std::size_t kElements = 4U << 20;
  for (const int saved_world : {1, 2}) {
    const ScratchFolder folder;
    const ScratchFolder states;
    std::vector<float> wanted(kElements);
    for (int rank = 0; rank < saved_world; ++rank) {
      std::vector<float> values(kElements);
      for (std::size_t i = 0; i < kElements; ++i) {
        values[i] = static_cast<float>((i + static_cast<std::size_t>(rank)) % 1000);
        wanted[i] += values[i] / static_cast<float>(saved_world);  // a mean
      }
      session::SavedState state{.rank = rank, .world_size = saved_world, .step = 5};
      state.tensors = {{"large", kElements, DType::f32, 1}};
      state.residuals.push_back({{0, codec::EncodeSite::local}, {0, exchange::ResidualValues(values)}});
      session::write_state_file(state, states.path(), std::nullopt);
    }
    Session session(
        make_inproc_world(1)[0],
        Policy::parse("version = 1\n[memory]\nlimit = \"8MiB\"\n[defaults]\ncodec = \"int4\"\nresiduals = { "
                      "store = \"file:" +
                      folder.path().string() + "\", memory = \"1MiB\" }\n"));
    std::vector<float> gradient(kElements);
    session.add("large", view(gradient.data(), gradient.size()));
    session.load(states.path());
    EXPECT_EQ(session.residual_bytes(), kElements * sizeof(float));
    std::stringstream again;
    session.save(again);
    const session::SavedState loaded = [&] {
      memory::configure_page_pool({}, std::nullopt, 1);
      return session::read_state(again, "it");
    }();
    ASSERT_EQ(loaded.residuals.size(), 1U);
    std::vector<float> room(kElements);
    const float* values = loaded.residuals[0].range.values.look(0, kElements, room.data());
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), values)) << saved_world;
  }
}

// Copies for other ranks lie in memory even where residuals do not, so they may be what does not fit. Mutation tried:
// the check counts residuals and frames alone, and the session trains.
TEST(SpilledSession, CopiesForOtherRanksThatDoNotFitAreAnErrorBeforeTheFirstStep) {
  const ScratchFolder folder;
  for (const std::string& residuals : {std::string(), "residuals = { " + stored(folder.path()) + " }\n"}) {
    auto processes = make_inproc_processes(2);
    std::vector<std::string> messages(2);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i, own = std::move(processes[i])]() mutable {
        try {
          Session session(std::move(own), Policy::parse("version = 1\nfloor = 0\n[bucket]\nin_flight = \"256KiB\"\n"
                                                        "[memory]\nlimit = \"24MiB\"\n[elastic]\n"
                                                        "replicate = \"1 step\"\nreplicate_as = \"exact\"\n"
                                                        "[defaults]\ncodec = \"int4\"\n" +
                                                        residuals));
          std::vector<float> gradient(1'000'000, 1.0F);
          session.ready(session.add("large", view(gradient.data(), gradient.size())));
          const StepOutcome outcome = session.finish();
          // Where the other rank was refused first, this one goes on alone and copies nothing.
          EXPECT_TRUE(outcome.repeat || session.world_size() == 1) << "a step counts: " << residuals;
        } catch (const Error& error) {
          messages[i] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    memory::configure_page_pool({}, std::nullopt, 1);
    EXPECT_THAT(messages,
                Contains(AllOf(HasSubstr("of their copies ([elastic] replicate)"), HasSubstr("the limit is 24MiB"))));
  }
}

TEST(SpilledSession, ThePlanTellsWhatLiesWhere) {
  const Policy policy = Policy::parse(
      with_store("codec = \"int4\"\nsecond_hop = \"exact\"\n", "store = \"file:/scratch\", memory = \"1MiB\""));
  const plan::Plan plan =
      plan::make_plan(policy, {{"t", std::uint64_t{1} << 20, DType::f32, 1}}, {.world_size = 2, .undoable = true});
  const plan::MemoryUse use = memory_of(plan);
  EXPECT_EQ(use.local + use.second, std::uint64_t{8} << 20);
  EXPECT_EQ(use.in_files, std::uint64_t{7} << 20);
  EXPECT_EQ(use.residuals(), std::uint64_t{1} << 20);
  EXPECT_THAT(plan.explain(), HasSubstr("of these in a file in /scratch"));
  EXPECT_THAT(plan.explain(), HasSubstr("int8 without error feedback saves 1MiB\n")) << "the file is no memory";
  EXPECT_THAT(plan.explain(), Not(HasSubstr("bf16"))) << "a file of half the size leaves as much in memory";
  EXPECT_EQ(plan::disk_room_of(plan, 0).begin()->second, std::uint64_t{12} << 20) << "and room for a copy";
  // Mutation tried: bytes are reserved, and not the pages of each array.
  const plan::Plan small = plan::make_plan(
      Policy::parse(
          "version = 1\nfloor = 0\n[defaults]\ncodec = \"int4\"\nsecond_hop = \"exact\"\nalgorithm = \"two_shot\"\n"
          "residuals = { store = \"file:/scratch\", memory = \"1MiB\" }\n"),
      {{"a", 17000, DType::f32, 1}, {"b", 17000, DType::f32, 1}}, {.world_size = 2});
  EXPECT_EQ(plan::disk_room_of(small, 0).begin()->second, 2 * 18 * memory::kFileUnit);
  Policy made = Policy::uniform("int4");
  made.defaults.residuals = {.store = "/scratch", .memory = std::uint64_t{1} << 20};
  EXPECT_THROW(static_cast<void>(plan::make_plan(made, {{"t", 100'000, DType::f32, 1}}, {.world_size = 2})), Error);
}

}  // namespace
}  // namespace gradwire::test

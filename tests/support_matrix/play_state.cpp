// Plays saved states, and jobs whose ranks end and join.
#include <gtest/gtest.h>

#include <chrono>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/scratch_folder.hpp"
#include "tests/support_matrix/feature_plays.hpp"
#include "tests/support_matrix/small_jobs.hpp"

namespace gradwire::support::play {
namespace {

// Repeats a step until it counts.
void step_until_it_counts(Rank& rank, TensorId id) {
  rank.fill();
  while (rank.step(id).repeat) {
    rank.fill();
  }
}

Rank rank_over(Place place, const std::shared_ptr<Processes>& processes, const Policy& policy) {
  return {static_cast<int>(processes->self()), [&](std::shared_ptr<test::HostDevice>& device) {
            return session_over(place, processes, policy, {}, device);
          }};
}

Policy elastic_policy(Place place, std::uint32_t spares) {
  Policy policy = Policy::uniform("int8");
  policy.deterministic = is_on_device(place);
  policy.elastic = Policy::Elastic{.spares = spares};
  return policy;
}

}  // namespace

void folder(Place place) {
  const test::ScratchFolder scratch;
  for (const bool loads : {false, true}) {
    on_session(place, with("int4"), [&](Rank& rank) {
      const TensorId id = rank.session.add("w", rank.gradient_view());
      if (loads) {
        rank.session.load(scratch.path());
        EXPECT_EQ(rank.session.step(), 1U);
      } else {
        rank.step(id);
        rank.session.save(scratch.path());
      }
    });
  }
}

void stream(Place place) {
  std::vector<std::string> states(kRanks);
  for (const bool loads : {false, true}) {
    on_session(place, with("int4"), [&](Rank& rank) {
      const TensorId id = rank.session.add("w", rank.gradient_view());
      std::string& state = states[static_cast<std::size_t>(rank.number)];
      if (loads) {
        std::istringstream in(state);
        rank.session.load(in);
        EXPECT_EQ(rank.session.step(), 1U);
      } else {
        rank.step(id);
        std::ostringstream out;
        rank.session.save(out);
        state = out.str();
      }
    });
  }
}

void checkpoint(Place place) {
  const test::ScratchFolder scratch;
  for (const bool restores : {false, true}) {
    on_session(place, with("int4"), [&](Rank& rank) {
      const TensorId id = rank.session.add("w", rank.gradient_view());
      const std::vector<View> parameters{rank.view_of(rank.parameter)};
      if (restores) {
        EXPECT_EQ(rank.session.restore(scratch.path(), parameters), 1U);
        EXPECT_EQ(rank.session.step(), 1U);
      } else {
        rank.step(id);
        rank.session.checkpoint(scratch.path(), std::vector<ConstView>(parameters.begin(), parameters.end()));
        rank.session.wait_for_checkpoint();
      }
    });
  }
}

void record_gradients(Place place) {
  const test::ScratchFolder scratch;
  on_session(place, with("int8"), [&](Rank& rank) {
    const TensorId id = rank.session.add("w", rank.gradient_view());
    const auto folder = scratch.path() / std::to_string(rank.number);
    rank.session.record_gradients(folder, 1);
    rank.step(id);
    EXPECT_TRUE(std::filesystem::exists(folder / "step-0/w.npy"));
  });
}

void going_on(Place place) {
  on_processes(make_inproc_processes(3), [&](const std::shared_ptr<Processes>& processes) {
    Rank rank = rank_over(place, processes, elastic_policy(place, 0));
    const TensorId id = rank.session.add("w", rank.gradient_view());
    step_until_it_counts(rank, id);
    if (rank.number == 2) {
      return;  // this rank leaves
    }
    while (rank.session.world_size() == 3) {
      rank.fill();
      rank.step(id);
    }
    step_until_it_counts(rank, id);
    EXPECT_EQ(rank.session.world_size(), 2);
    EXPECT_NEAR(rank.gradient[7], 2, 0.1);
  });
}

void world_change(Place place) {
  on_session(place, with("int8"), [](Rank& rank) { rank.session.on_world_change([](const WorldChange&) {}); });
}

void share(Place place) {
  on_session(place, with("int8"), [](Rank& rank) {
    rank.session.add("w", rank.gradient_view());
    EXPECT_TRUE(rank.session.share(rank.view_of(rank.other)));
    rank.settle();
  });
}

void spares(Place place) {
  on_processes(make_inproc_processes(3), [&](const std::shared_ptr<Processes>& processes) {
    Rank rank = rank_over(place, processes, elastic_policy(place, 1));
    const TensorId id = rank.session.add("w", rank.gradient_view());
    EXPECT_EQ(rank.session.rank(), rank.number < 2 ? rank.number : -1);
    if (!rank.session.share(rank.view_of(rank.parameter))) {
      EXPECT_EQ(rank.number, 2) << "only the spare, which was not needed, is here";
      return;
    }
    for (int step = 0; step < 3; ++step) {
      step_until_it_counts(rank, id);
    }
  });
}

void joining(Place place) {
  std::vector<std::shared_ptr<Processes>> processes = make_inproc_processes(2, true);
  processes.push_back(join_inproc_processes(*processes[0]));
  on_processes(processes, [&](const std::shared_ptr<Processes>& own) {
    Rank rank = rank_over(place, own, elastic_policy(place, 0));
    const TensorId id = rank.session.add("w", rank.gradient_view());
    ASSERT_TRUE(rank.session.share(rank.view_of(rank.parameter)));
    while (rank.session.world_size() < 3) {
      rank.fill();
      rank.step(id);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    step_until_it_counts(rank, id);
    EXPECT_EQ(rank.session.world_size(), 3);
  });
}

void confirm(Place place) {
  on_session(place, with("int8"), [](Rank& rank) {
    rank.step(rank.session.add("w", rank.gradient_view()));
    rank.session.confirm();
  });
}

}  // namespace gradwire::support::play

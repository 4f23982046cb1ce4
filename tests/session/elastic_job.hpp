// A small job over Processes for tests: the actions of each process, and their outcome.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <thread>

#include "gradwire/session.hpp"
#include "tests/support/at_once.hpp"
#include "tests/support/mortal.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {

using Id = Processes::Id;
using std::chrono::milliseconds;

inline constexpr int kRanks = 4;
inline constexpr std::uint64_t kSteps = 6;

// The outcome of one process.
struct Fate {
  std::vector<float> parameters;            // includes momentum if that is averaged
  std::string state;                        // written by save()
  std::string before_change, after_change;  // states before and after a change of world, by save()
  std::vector<WorldChange> changes;
  std::vector<std::uint64_t> first;            // the first step of each new world
  std::vector<bool> in_sync;                   // whether each change came in a call between steps
  std::vector<float> held_before, held_after;  // values, including the rank's own, around the last change of these
  std::optional<Error> error;
  std::optional<std::uint64_t> restored;
  bool unused = false;  // a spare that waited until the job ended
  bool dead = false;    // dead at the end; it may have done everything before
  int world_size = 0;   // size of the last world
  std::int64_t operations = 0;
};

using MakeSession = std::function<Session(std::shared_ptr<Processes>, const Policy&, const SessionOptions&)>;

struct Plan {
  std::string policy = "[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\n";
  std::map<Id, std::int64_t> dies_after = {};                         // number of operations
  std::map<Id, std::uint64_t> leaves_before = {};                     // leaves before this step
  std::map<Id, std::uint64_t> leaves_before_sync = {};                // leaves before sync_parameters() of this step
  std::map<Id, std::pair<std::uint64_t, std::int64_t>> dies_in = {};  // the step, and the number of its operations
  std::map<Id, std::pair<std::int64_t, milliseconds>> silent_after = {};
  std::shared_ptr<Cut> cut = nullptr;
  std::map<Id, std::int64_t> cuts_after = {};
  std::chrono::seconds timeout{30};
  std::uint64_t steps = kSteps;
  bool weighted = false;            // weights and a loss scale, but no loss scale with outer momentum
  bool scaled = false;              // preconditioned encoding
  std::set<ErrorCode> errors = {};  // errors that processes may end with
  bool keeps_states = false;
  std::optional<Id> forgets_a_tensor = {};  // process that forgets one in step 3
  std::optional<std::uint64_t> skips = {};  // step that is skipped for a NaN in a gradient of process 0
  Nonfinite nonfinite = Nonfinite::automatic;
  bool broadcasts = false;                         // broadcasts something before each step
  std::optional<std::uint64_t> flushes = {};       // flushes in this step
  bool saves = false;                              // saves after each step
  bool rescales = false;                           // changes the loss scale after each step
  std::optional<std::uint64_t> syncs_before = {};  // calls sync_parameters() before this step
  std::filesystem::path checkpoints = {};          // the job goes on from there, and writes one after each step
  int spares = 0;                                  // processes beyond the ranks
  std::vector<std::uint64_t> joins_at = {};        // steps at which other processes join
  milliseconds joins_after{0};                     // delay of a joiner after its step is reached
  milliseconds step_takes{0};
  std::map<Id, std::string> policies = {};  // of processes with a policy of their own
  std::map<Id, std::size_t> smaller = {};   // by how many elements the first tensor of a process is smaller
  bool device_frames = false;               // as in Life
  MakeSession make_session = nullptr;       // null makes sessions over host memory
};

// The step that the training processes have reached.
class Progress {
 public:
  void reach(std::uint64_t step) {
    const std::lock_guard lock(mutex_);
    step_ = std::max(step_, step);
    changed_.notify_all();
  }
  void wait_for(std::uint64_t step) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return step_ >= step; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t step_ = 0;
};

// Returns noise that depends on the process, the step, and the value of the parameter.
inline float gradient_of(float parameter, std::size_t i, Id who, std::uint64_t step) {
  const double noise = std::sin(0.37 * static_cast<double>(i) + 1.7 * who + 0.9 * static_cast<double>(step));
  return parameter - static_cast<float>(0.01 * static_cast<double>(i % 7)) + static_cast<float>(noise);
}

inline std::string state_of(Session& session) {
  std::ostringstream state;
  session.save(state);
  return state.str();
}

inline void train(Session& session, Id self, const Plan& plan, Life& life, Fate& fate, Progress& progress) {
  const bool others_come = plan.spares > 0 || !plan.joins_at.empty();
  const bool local = plan.policy.find("every") != std::string::npos;
  const bool outer = plan.policy.find("outer") != std::string::npos;
  const std::size_t sizes[] = {9000 - (plan.smaller.contains(self) ? plan.smaller.at(self) : 0), 3, 5000};
  std::vector<std::vector<float>> parameters, momentum, gradients, scales;
  std::vector<TensorId> ids;
  for (const std::size_t size : sizes) {
    parameters.emplace_back(size, self == 0 ? 1.0F : 0.0F);
    momentum.emplace_back(size);
    gradients.emplace_back(size);
    scales.emplace_back(plan.scaled ? size : 0);
  }
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    const auto whole = [](std::vector<float>& values) { return view(values.data(), values.size()); };
    const std::string name = "t" + std::to_string(t);
    ids.push_back(local ? session.add(name, whole(gradients[t]), whole(parameters[t]), {whole(momentum[t])})
                        : session.add(name, whole(gradients[t]), {.scale = scales[t]}));
  }
  const auto loss_scale = [&](std::uint64_t step) {
    return (plan.weighted && !outer ? 4.0F : 1.0F) * (plan.rescales ? static_cast<float>(1U << step % 3) : 1.0F);
  };
  bool in = false;  // before that, a rank may have been in no other world
  bool syncs = false;
  session.on_world_change([&](const WorldChange& change) {
    fate.changes.push_back(change);
    if (in) {
      fate.first.push_back(session.step());
      fate.in_sync.push_back(syncs);
    }
  });
  const auto sync = [&] {
    syncs = true;
    session.sync_parameters();
    syncs = false;
  };
  const auto rescale_and_save = [&] {
    syncs = true;
    if (plan.rescales) {
      session.set_loss_scale(loss_scale(session.step()));
    }
    if (plan.saves) {
      static_cast<void>(state_of(session));
    }
    syncs = false;
  };
  std::vector<View> all;
  for (std::vector<float>& values : parameters) {
    all.push_back(view(values.data(), values.size()));
  }
  std::vector<float> own{0};  // values of this rank alone
  std::vector<View> shared = all;
  shared.push_back(view(own.data(), own.size()));
  const auto held = [&] {
    std::vector<float> values = own;
    for (const auto* each : {&parameters, &momentum}) {
      for (const std::vector<float>& one : *each) {
        values.insert(values.end(), one.begin(), one.end());
      }
    }
    return values;
  };
  if (loss_scale(0) != 1 && session.rank() >= 0) {  // spares receive it
    session.set_loss_scale(loss_scale(0));
  }
  for (bool done = false; !done;) {
    try {
      if (others_come) {
        fate.unused = !session.share(shared);
      } else {
        session.broadcast(all);
      }
      done = true;
    } catch (const Error& error) {  // the root has ended, and the caller handles that
      if (error.code() != ErrorCode::invalid_argument) {
        throw;
      }
      for (std::vector<float>& values : parameters) {
        values.assign(values.size(), 1.0F);
      }
    }
  }
  if (fate.unused) {
    return;
  }
  in = true;
  if (session.step() > 0) {
    fate.held_after = held();
    fate.after_change = plan.keeps_states ? state_of(session) : "";
  } else {
    own = {static_cast<float>(self + 1)};
  }
  if (others_come && session.step() == 0) {
    std::this_thread::sleep_for(milliseconds(150));  // gives spares time to report that they wait
  }
  const std::vector<ConstView> saved(all.begin(), all.end());
  if (!plan.checkpoints.empty()) {
    fate.restored = session.restore(plan.checkpoints, all);
  }
  const auto leaves = plan.leaves_before.find(self);
  while (session.step() < plan.steps) {
    const std::uint64_t step = session.step();
    progress.reach(step);
    std::this_thread::sleep_for(plan.step_takes);
    if (plan.syncs_before == step) {
      sync();
      if (plan.keeps_states && fate.changes.empty()) {
        fate.before_change = state_of(session);
      }
    }
    if (leaves != plan.leaves_before.end() && step == leaves->second) {
      return;
    }
    if (const auto dies = plan.dies_in.find(self); dies != plan.dies_in.end() && step == dies->second.first) {
      life.end_after(dies->second.second);
    }
    if (plan.broadcasts) {
      auto word = static_cast<double>(step);
      try {
        session.broadcast(view(&word, 1));
      } catch (const Error& error) {  // the root has ended
        if (error.code() != ErrorCode::invalid_argument) {
          throw;
        }
      }
    }
    if (plan.flushes == step) {
      session.flush();
    }
    if (plan.weighted) {
      session.set_weight(1 + self);
    }
    if (plan.keeps_states) {
      fate.held_before = held();
    }
    for (std::size_t t = 0; t < gradients.size(); ++t) {
      for (std::size_t i = 0; i < gradients[t].size(); ++i) {
        gradients[t][i] = gradient_of(parameters[t][i], i, self, step) * loss_scale(step);
      }
      if (plan.skips == step && self == 0) {
        gradients[t][0] = NAN;
      }
      for (std::size_t i = 0; i < scales[t].size(); ++i) {
        scales[t][i] = static_cast<float>(std::exp(std::sin(0.5 * static_cast<double>(i + step))));
      }
      if (t > 0 || step != 3 || plan.forgets_a_tensor != self) {
        session.ready(ids[t]);
      }
    }
    const StepOutcome outcome = session.finish();
    EXPECT_EQ(outcome.step, step);
    if (outcome.world_changed) {
      EXPECT_EQ(session.step(), outcome.repeat ? step : step + 1);
      EXPECT_EQ(session.explain().find("by scale") != std::string::npos, plan.scaled);
    }
    if (outcome.repeat) {
      EXPECT_TRUE(outcome.world_changed);
      if (plan.keeps_states) {  // every rank would reduce late results on account of that
        fate.after_change = state_of(session);
        fate.held_after = held();
        EXPECT_EQ(fate.held_after, fate.held_before) << "the rank's own values must be as before the step";
      }
      continue;
    }
    if (plan.keeps_states && fate.changes.empty() && !life.dead()) {  // it may have died just as the step was counted
      fate.before_change = state_of(session);
    }
    for (std::size_t t = 0; !outcome.skipped && t < gradients.size(); ++t) {
      for (std::size_t i = 0; i < gradients[t].size(); ++i) {
        momentum[t][i] = (local ? 0.5F * momentum[t][i] : 0.0F) + gradients[t][i];
        parameters[t][i] -= 0.1F / loss_scale(step) * momentum[t][i];
      }
    }
    if (!plan.checkpoints.empty()) {
      session.checkpoint(plan.checkpoints, saved);
    }
    if (others_come && step % 3 == 0) {  // mutation tried, it stalls: a newcomer does not know about it
      if (plan.leaves_before_sync.contains(self) && plan.leaves_before_sync.at(self) == session.step()) {
        return;
      }
      sync();
    }
    rescale_and_save();
  }
  session.wait_for_checkpoint();
  if (leaves != plan.leaves_before.end() && leaves->second == plan.steps) {
    return;
  }
  if (local) {
    sync();
  }
  session.confirm();  // otherwise a process that was cut off may hold a last step that the others made again
  const auto note = [&](const std::vector<std::vector<float>>& all_values) {
    for (const std::vector<float>& values : all_values) {
      fate.parameters.insert(fate.parameters.end(), values.begin(), values.end());
    }
  };
  note(parameters);
  if (local && !outer) {
    note(momentum);
  }
  fate.world_size = session.world_size();
  fate.state = state_of(session);
}

// Runs one process.
inline void live(std::shared_ptr<Processes> own, const Plan& plan, Fate& fate, Progress& progress) {
  const Id id = own->self();
  std::shared_ptr<Life> life = std::make_shared<Life>();
  if (const auto dies = plan.dies_after.find(id); dies != plan.dies_after.end()) {
    life = std::make_shared<Life>(dies->second);
  } else if (const auto silent = plan.silent_after.find(id); silent != plan.silent_after.end()) {
    life = std::make_shared<Life>(silent->second.first, silent->second.second);
  } else if (const auto cuts = plan.cuts_after.find(id); cuts != plan.cuts_after.end()) {
    life = std::make_shared<Life>(cuts->second, [cut = plan.cut] { cut->happen(); });
  }
  life->device_frames = plan.device_frames;
  try {
    const auto other = plan.policies.find(id);
    Policy policy = Policy::parse(other == plan.policies.end() ? plan.policy : other->second);
    if (other == plan.policies.end() && plan.spares > 0) {
      policy.elastic = policy.elastic.value_or(Policy::Elastic{});
      policy.elastic->spares = static_cast<std::uint32_t>(plan.spares);
    }
    auto mortal = std::make_shared<MortalProcesses>(std::move(own), life, plan.cut);
    const SessionOptions options{.timeout = plan.timeout, .nonfinite = plan.nonfinite};
    Session session = plan.make_session ? plan.make_session(std::move(mortal), policy, options)
                                        : Session(std::move(mortal), policy, options);
    train(session, id, plan, *life, fate, progress);
  } catch (const Error& error) {
    fate.error = error;
    const bool expected = plan.errors.contains(error.code()) || life->dead();
    EXPECT_TRUE(expected) << "process " << id << ": " << error.what();
  } catch (const Death&) {
    EXPECT_TRUE(life->dead());
  }
  fate.dead = life->dead();
  fate.operations = life->counted();
}

inline std::vector<Fate> run(const Plan& plan, int ranks = kRanks) {
  const Watchdog watchdog(::testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::size_t start = static_cast<std::size_t>(ranks) + static_cast<std::size_t>(plan.spares);
  std::vector<Fate> fates(start + plan.joins_at.size());
  auto processes = make_inproc_processes(static_cast<int>(start), !plan.joins_at.empty());
  const auto any = plan.joins_at.empty() ? nullptr : join_inproc_processes(*processes[0]);  // to join by
  if (any != nullptr) {
    any->end();
  }
  Progress progress;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < start; ++i) {
    threads.emplace_back([&, i, own = std::exchange(processes[i], nullptr)]() mutable {
      live(std::move(own), plan, fates[i], progress);
      progress.reach(plan.steps);  // lets go of processes that wait for a step
    });
  }
  for (std::size_t i = 0; i < plan.joins_at.size(); ++i) {
    progress.wait_for(plan.joins_at[i]);
    std::this_thread::sleep_for(plan.joins_after);
    threads.emplace_back([&, i, own = join_inproc_processes(*any)]() mutable {
      live(std::move(own), plan, fates[start + i], progress);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return fates;
}

inline std::vector<Id> survivors_of(const std::vector<Fate>& fates) {
  std::vector<Id> ids;
  for (Id id = 0; id < fates.size(); ++id) {
    if (!fates[id].parameters.empty() && !fates[id].dead) {
      ids.push_back(id);
    }
  }
  return ids;
}

inline void expect_equal(const Fate& a, const Fate& b, bool state) {
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  EXPECT_EQ(std::memcmp(a.parameters.data(), b.parameters.data(), a.parameters.size() * sizeof(float)), 0);
  if (state) {
    EXPECT_TRUE(a.state == b.state);
  }
}

}  // namespace gradwire::test

// Runs a job over Processes whose sessions have tables. The expected rows are computed densely over the ranks that took
// part in each step.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/session.hpp"
#include "table/shard.hpp"
#include "tests/support/mortal.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {

using Id = Processes::Id;

struct TablePlan {
  std::string policy = "[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\n";
  Reduction reduction = Reduction::mean;
  bool weighted = false;
  std::vector<SessionTableOptions> tables = {
      {.name = "users", .rows = 60, .width = 3, .optimizer = RowOptimizer::adagrad, .initial_scale = 0.5F, .seed = 7},
      {.name = "items", .rows = 35, .width = 5, .learning_rate = 0.1F},
  };
  std::uint64_t steps = 5;  // the job makes one more, which reads all rows
  int ranks = 4;
  int spares = 0;
  int joins = 0;                                                      // processes that join during steps of 10 ms
  std::map<Id, std::int64_t> dies_after = {};                         // number of operations
  std::map<Id, std::pair<std::uint64_t, std::int64_t>> dies_in = {};  // the step, and the number of its operations
  std::map<Id, std::uint64_t> leaves_before = {};                     // the step
  std::map<Id, std::function<void(TablePlan&)>> otherwise = {};       // changes to the plan of one process
  std::set<ErrorCode> errors = {};                                    // errors that processes may end with
  std::filesystem::path checkpoints = {};                             // goes on from there, writes one per step
  std::uint32_t node = 0;                                             // number of consecutive processes on one node
  std::uint64_t ids_of_a_step = 24;                                   // of each rank and table
};

struct TableFate {
  std::vector<std::vector<float>> rows;     // final rows of each table
  std::vector<std::vector<Id>> took_part;   // by step
  std::vector<TableStatistics> statistics;  // of each table
  std::vector<std::uint64_t> pulls_anew;    // steps in which pull() returned false
  std::optional<Error> error;
  std::uint64_t restored = 0;
  bool unused = false;
  bool dead = false;
  std::int64_t operations = 0;
};

inline std::vector<std::uint64_t> ids_of(const SessionTableOptions& options, Id who, std::uint64_t step,
                                         std::uint64_t count) {
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < count; ++i) {  // some ids twice, and many on three ranks
    ids.push_back((11 * who + 17 * step + 3 * i * i + 7 * i) % options.rows);
  }
  return ids;
}

inline float row_gradient(float value, std::uint64_t id, std::size_t column, Id who, std::uint64_t step) {
  const double noise = std::sin(0.7 * static_cast<double>(id) + 0.3 * static_cast<double>(column) + 1.9 * who +
                                0.8 * static_cast<double>(step));
  return 0.3F * value + static_cast<float>(noise);
}

inline std::vector<float> gradients_of(const SessionTableOptions& options, const std::vector<std::uint64_t>& ids,
                                       const std::vector<float>& rows, Id who, std::uint64_t step) {
  std::vector<float> gradients(rows.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::size_t j = 0; j < options.width; ++j) {
      gradients[i * options.width + j] = row_gradient(rows[i * options.width + j], ids[i], j, who, step);
    }
  }
  return gradients;
}

/// Computes the same job without tables: every row in one place.
class DenseTable {
 public:
  explicit DenseTable(const SessionTableOptions& options)
      : options_(options), values(options.rows * options.width), squares_(values.size()) {
    const table::Shard fresh({.width = options.width, .initial_scale = options.initial_scale, .seed = options.seed});
    for (std::uint64_t id = 0; id < options.rows; ++id) {
      fresh.read(id, values.data() + id * options.width);
    }
  }

  void step(const std::vector<Id>& members, std::uint64_t number, const TablePlan& plan) {
    std::map<std::uint64_t, std::vector<float>> sums;
    double total = 0;
    for (const Id who : members) {
      const std::vector<std::uint64_t> ids = ids_of(options_, who, number, plan.ids_of_a_step);
      std::vector<float> rows;
      for (const std::uint64_t id : ids) {
        const float* row = values.data() + id * options_.width;
        rows.insert(rows.end(), row, row + options_.width);
      }
      const std::vector<float> gradients = gradients_of(options_, ids, rows, who, number);
      std::map<std::uint64_t, std::vector<float>> own;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        add(own[ids[i]], gradients.data() + i * options_.width, 1);
      }
      const float weight = plan.weighted ? static_cast<float>(1 + who) : 1;
      total += weight;
      for (const auto& [id, gradient] : own) {
        add(sums[id], gradient.data(), weight);
      }
    }
    for (auto& [id, sum] : sums) {
      for (std::size_t j = 0; j < options_.width; ++j) {
        const float g = plan.reduction == Reduction::mean ? sum[j] / static_cast<float>(total) : sum[j];
        float& value = values[id * options_.width + j];
        float& square = squares_[id * options_.width + j];
        if (options_.optimizer == RowOptimizer::sgd) {
          value -= options_.learning_rate * g;
        } else {
          square += g * g;
          value -= options_.learning_rate * g / (std::sqrt(square) + options_.epsilon);
        }
      }
    }
  }

 private:
  void add(std::vector<float>& to, const float* row, float weight) const {
    to.resize(options_.width);
    for (std::size_t j = 0; j < options_.width; ++j) {
      to[j] += weight * row[j];
    }
  }

  SessionTableOptions options_;

 public:
  std::vector<float> values;

 private:
  std::vector<float> squares_;
};

inline std::vector<std::vector<float>> dense_rows(const TablePlan& plan,
                                                  const std::vector<std::vector<Id>>& took_part) {
  std::vector<std::vector<float>> rows;
  for (const SessionTableOptions& options : plan.tables) {
    DenseTable table(options);
    for (std::uint64_t step = 0; step < plan.steps; ++step) {
      table.step(took_part[step], step, plan);
    }
    rows.push_back(table.values);
  }
  return rows;
}

inline void train_tables(Session& session, Id self, const TablePlan& plan, Life& life, TableFate& fate) {
  std::vector<float> gradient(500);
  std::vector<float> parameter(500);
  const bool local = plan.policy.find("every") != std::string::npos;
  const TensorId dense =
      local ? session.add("w", view(gradient.data(), gradient.size()), view(parameter.data(), parameter.size()))
            : session.add("w", view(gradient.data(), gradient.size()));
  std::vector<TableId> tables;
  for (const SessionTableOptions& options : plan.tables) {
    tables.push_back(session.add_table(options));
  }
  std::vector<Id> members(static_cast<std::size_t>(plan.ranks));
  std::iota(members.begin(), members.end(), 0U);
  session.on_world_change([&](const WorldChange& change) {
    for (const int rank : std::vector<int>(change.lost.rbegin(), change.lost.rend())) {
      if (static_cast<std::size_t>(rank) < members.size()) {  // a newcomer does not know the earlier ranks
        members.erase(members.begin() + rank);
      }
    }
    for (const std::string& name : change.joined_names) {
      Id id = 0;
      ASSERT_EQ(std::sscanf(name.c_str(), name[0] == 'r' ? "rank %u" : "process %u", &id), 1) << name;
      members.push_back(id);
    }
    std::sort(members.begin(), members.end());
  });
  if (plan.spares + plan.joins > 0) {
    fate.unused = !session.share(view(parameter.data(), parameter.size()));
    if (fate.unused) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(session.step() == 0 ? 150 : 0));  // spares report late
  }
  const ConstView saved{parameter.data(), parameter.size(), DType::f32};
  if (!plan.checkpoints.empty()) {
    const View loaded = view(parameter.data(), parameter.size());
    fate.restored = session.restore(plan.checkpoints, std::span(&loaded, 1));
  }
  const bool knows = self < static_cast<Id>(plan.ranks);  // which ranks take part; a spare does not know earlier ones
  while (session.step() <= plan.steps) {
    const std::uint64_t step = session.step();
    const bool reads = step == plan.steps;
    std::this_thread::sleep_for(std::chrono::milliseconds(plan.joins > 0 ? 10 : 0));
    if (const auto leaves = plan.leaves_before.find(self); leaves != plan.leaves_before.end()) {
      if (step == leaves->second) {
        throw Death();
      }
    }
    if (const auto dies = plan.dies_in.find(self); dies != plan.dies_in.end() && step == dies->second.first) {
      life.end_after(dies->second.second);
    }
    std::vector<std::vector<float>> rows;
    bool pulled = true;
    for (std::size_t t = 0; pulled && t < tables.size(); ++t) {
      std::vector<std::uint64_t> ids = ids_of(plan.tables[t], self, step, plan.ids_of_a_step);
      if (reads) {
        ids.resize(plan.tables[t].rows);
        std::iota(ids.begin(), ids.end(), 0U);
      }
      rows.emplace_back(ids.size() * plan.tables[t].width);
      pulled = session.pull(tables[t], ids, rows.back());
    }
    if (!pulled) {
      fate.pulls_anew.push_back(step);
      continue;
    }
    for (std::size_t t = 0; !reads && t < tables.size(); ++t) {
      const std::vector<std::uint64_t> ids = ids_of(plan.tables[t], self, step, plan.ids_of_a_step);
      session.push(tables[t], ids, gradients_of(plan.tables[t], ids, rows[t], self, step));
    }
    if (plan.weighted) {
      session.set_weight(1 + self);
    }
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = row_gradient(0, i, 0, self, step);
    }
    session.ready(dense);
    const StepOutcome outcome = session.finish();
    if (outcome.repeat) {
      continue;
    }
    EXPECT_EQ(outcome.step, step);
    fate.took_part.resize(step);
    fate.took_part.push_back(knows ? members : std::vector<Id>());
    if (!plan.checkpoints.empty()) {
      session.checkpoint(plan.checkpoints, std::span(&saved, 1));
    }
    if (reads) {
      fate.rows = rows;
    }
  }
  session.wait_for_checkpoint();
  for (const TableId table : tables) {
    fate.statistics.push_back(session.table_statistics(table));
  }
}

inline std::vector<TableFate> run(const TablePlan& given) {
  const Watchdog watchdog(::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::vector<TableFate> fates(static_cast<std::size_t>(given.ranks + given.spares + given.joins));
  auto processes = make_inproc_processes(given.ranks + given.spares, given.joins > 0);
  while (processes.size() < fates.size()) {
    processes.push_back(join_inproc_processes(*processes[0]));
  }
  std::vector<std::thread> threads;
  for (Id id = 0; id < fates.size(); ++id) {
    threads.emplace_back([&, id, own = std::exchange(processes[id], nullptr)]() mutable {
      TablePlan plan = given;
      if (const auto other = given.otherwise.find(id); other != given.otherwise.end()) {
        other->second(plan);
      }
      const auto dies = plan.dies_after.find(id);
      const auto life = std::make_shared<Life>(dies == plan.dies_after.end() ? Life::kForEver : dies->second);
      try {
        Policy policy = Policy::parse(plan.policy);
        policy.elastic = policy.elastic.value_or(Policy::Elastic{});
        policy.elastic->spares = static_cast<std::uint32_t>(plan.spares);
        Session session(std::make_shared<MortalProcesses>(std::move(own), life, nullptr, plan.node), policy,
                        {.reduction = plan.reduction, .timeout = std::chrono::seconds(30)});
        train_tables(session, id, plan, *life, fates[id]);
      } catch (const Error& error) {
        fates[id].error = error;
        EXPECT_TRUE(plan.errors.contains(error.code()) || life->dead()) << "process " << id << ": " << error.what();
      } catch (const Death&) {
        life->die();
      }
      fates[id].dead = life->dead();
      fates[id].operations = life->counted();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return fates;
}

inline std::vector<Id> survivors_of(const std::vector<TableFate>& fates) {
  std::vector<Id> ids;
  for (Id id = 0; id < fates.size(); ++id) {
    if (!fates[id].rows.empty() && !fates[id].dead) {
      ids.push_back(id);
    }
  }
  return ids;
}

/// Expects that the ranks of the last world together hold each row that was ever written as often as they should, and
/// no other rows.
inline void expect_copies(const TablePlan& plan, const std::vector<TableFate>& fates,
                          const std::vector<std::vector<Id>>& took_part) {
  const std::vector<Id> survivors = survivors_of(fates);
  for (std::size_t t = 0; survivors.size() == took_part.back().size() && t < plan.tables.size(); ++t) {
    std::set<std::uint64_t> written;
    for (std::uint64_t step = 0; step < plan.steps; ++step) {
      for (const Id who : took_part[step]) {
        const std::vector<std::uint64_t> ids = ids_of(plan.tables[t], who, step, plan.ids_of_a_step);
        written.insert(ids.begin(), ids.end());
      }
    }
    std::uint64_t held = 0;
    for (const Id id : survivors) {
      held += fates[id].statistics.at(t).rows_held;
    }
    const std::uint32_t copies = plan.tables[t].copies == 0 ? 2 : plan.tables[t].copies;
    EXPECT_EQ(held, written.size() * std::min<std::size_t>(copies, survivors.size()));
  }
}

/// Expects equal rows bit for bit on all survivors.
inline void expect_dense(const TablePlan& plan, const std::vector<TableFate>& fates) {
  const std::vector<Id> survivors = survivors_of(fates);
  ASSERT_FALSE(survivors.empty());
  const auto old_hand = std::ranges::find_if(
      survivors, [&](Id id) { return std::ranges::none_of(fates[id].took_part, &std::vector<Id>::empty); });
  ASSERT_NE(old_hand, survivors.end());
  const auto wanted = dense_rows(plan, fates[*old_hand].took_part);
  for (const Id id : survivors) {
    for (std::size_t step = 0; step < plan.steps; ++step) {
      if (!fates[id].took_part[step].empty()) {
        EXPECT_EQ(fates[id].took_part[step], fates[*old_hand].took_part[step]);
      }
    }
    EXPECT_TRUE(fates[id].rows == wanted) << "process " << id;
  }
  expect_copies(plan, fates, fates[*old_hand].took_part);
}

}  // namespace gradwire::test

// Tests tables whose rows lie in memory and in a file: they do what tables in memory do, and errors of the file end
// them by name on every rank.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>

#include "saving_job.hpp"
#include "table_support.hpp"
#include "tests/support/scratch_folder.hpp"

extern char** environ;

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::uint64_t kRows = 24000;

TableOptions in_memory_options() {
  TableOptions options = table_options(kRows, 128);
  options.initial_scale = 2;
  options.seed = 11;
  return options;
}

/// Returns options with memory for a tenth of a rank's rows.
TableOptions store_options(const ScratchFolder& folder) {
  TableOptions options = in_memory_options();
  options.store = "file:" + folder.path().string();
  options.memory = 1200 << 10;
  return options;
}

/// Gradients that add up to the same sums in any order.
std::vector<float> whole_numbers(std::mt19937_64& random, std::size_t rows) {
  std::vector<float> values(rows * 128);
  for (float& value : values) {
    value = static_cast<float>(random() % 9) - 4;
  }
  return values;
}

/// The rows that a rank pulled, and those of a snapshot.
using Seen = std::vector<std::vector<float>>;

/// Makes the same steps on every rank with each table: random pulls, pushes and assigns, snapshots while pushes go on,
/// saves, loads.
Seen train(Table& table, unsigned seed, const fs::path& saves) {
  std::mt19937_64 random(seed + static_cast<unsigned>(table.rank()));
  std::mt19937_64 common(seed);
  Seen seen;
  const auto ids_of = [&](std::size_t most) {
    Ids ids(1 + random() % most);
    for (std::uint64_t& id : ids) {
      id = random() % 3 == 0 ? random() % kRows : random() % 60 * 400;  // the latter stay in memory
    }
    return ids;
  };
  if (table.rank() == 0) {
    const Ids ids = all_ids(table);
    table.assign(ids, whole_numbers(random, ids.size()));
  }
  table.synchronize();
  for (int step = 0; step < 12; ++step) {
    const Ids next = ids_of(1500);
    table.prefetch(next);
    const Ids ids = ids_of(1500);
    seen.push_back(pull(table, ids));
    seen.push_back(pull(table, next));
    table.synchronize();
    if (step % 4 == 1) {
      const TableSnapshot snapshot = table.snapshot();
      table.push(ids, whole_numbers(random, ids.size()));
      table.synchronize();
      std::uint64_t rows = 0;
      std::vector<float> sums(128);
      snapshot.for_each([&](std::uint64_t id, std::span<const float> values) {
        ++rows;
        for (std::size_t i = 0; i < values.size(); ++i) {
          sums[i] += values[i] * static_cast<float>(1 + id % 7);
        }
      });
      EXPECT_EQ(rows, snapshot.rows());
      seen.push_back(sums);
      for (const std::uint64_t id : ids) {
        if (table.owner(id) == table.rank()) {
          const std::span<const float> row = snapshot.find(id);
          seen.emplace_back(row.begin(), row.end());
        }
      }
    } else {
      table.push(ids, whole_numbers(random, ids.size()));
    }
    table.tick();
    table.synchronize();
    switch (common() % 4) {
      case 0: table.save(saves); break;
      case 1:
        if (fs::exists(saves)) {
          table.load(saves);
        }
        break;
      default: break;
    }
    table.synchronize();
  }
  seen.push_back(pull(table, all_ids(table)));
  return seen;
}

std::vector<Seen> run_all(const TableOptions& options, int ranks, unsigned seed,
                          std::vector<TableStatistics>* statistics = nullptr) {
  const ScratchFolder saves;
  std::vector<Seen> seen(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  run_tables(ranks, options, [&](Table& table) {
    Seen own = train(table, seed, saves.path() / "saves");
    const std::lock_guard lock(mutex);
    seen[static_cast<std::size_t>(table.rank())] = std::move(own);
    if (statistics != nullptr) {
      statistics->push_back(table.statistics());
    }
  });
  return seen;
}

TEST(TieredTable, DoesWhatOneInMemoryDoes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const ScratchFolder folder;
  for (const int ranks : {1, 3}) {
    TableOptions plain = in_memory_options();
    TableOptions tiered = store_options(folder);
    tiered.cache_bytes = ranks == 1 ? 0 : 1 << 20;
    plain.cache_bytes = 1 << 20;  // without a cache, only a store may prefetch
    std::vector<TableStatistics> statistics;
    EXPECT_EQ(run_all(tiered, ranks, seed, &statistics), run_all(plain, ranks, seed));
    for (const TableStatistics& of : statistics) {
      EXPECT_GT(of.rows_held, 10 * of.store.rows_in_memory);
      EXPECT_EQ(of.store.rows_in_memory + of.store.rows_in_file, of.rows_held);
      EXPECT_LE(of.store.memory_bytes, tiered.memory);
      EXPECT_GT(of.store.reads, 0U);
      EXPECT_GT(of.store.hits, 0U);
    }
  }
}

// A pull waits for rows of the file, and then finds those of a prefetch in memory.
TEST(TieredTable, PrefetchBringsRowsToMemory) {
  const ScratchFolder folder;
  run_tables(1, store_options(folder), [](Table& table) {
    const Ids ids = all_ids(table);
    table.assign(ids, std::vector<float>(ids.size() * 128, 1.0F));
    Ids some;
    for (std::uint64_t id = 0; id < 6000; id += 40) {
      some.push_back(id);
    }
    table.prefetch(some);
    for (int i = 0; i < 10000 && table.statistics().store.reads < some.size(); ++i) {
      table.progress();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    const TableStatistics before = table.statistics();
    EXPECT_GE(before.store.reads, some.size());
    static_cast<void>(pull(table, some));
    const TableStatistics after = table.statistics();
    EXPECT_EQ(after.store.reads, before.store.reads);
    EXPECT_EQ(after.store.hits, before.store.hits + some.size());
  });
}

/// Runs a table of two ranks until rank 0's file fails by what `damage` does; returns the errors by rank.
std::vector<std::string> errors_after(const ScratchFolder& folder, const std::function<void()>& damage) {
  std::vector<std::string> errors(2);
  run_ranks(2, [&](std::shared_ptr<Transport> transport) {
    const int rank = transport->rank();
    TableOptions options = store_options(folder);
    options.timeout = std::chrono::seconds(20);
    Table table(std::move(transport), options);
    const Ids ids = all_ids(table);
    if (rank == 0) {
      table.assign(ids, std::vector<float>(ids.size() * 128, 1.0F));
    }
    table.synchronize();
    if (rank == 0) {
      damage();
    }
    try {
      table.synchronize();
      for (int i = 0; i < 200; ++i) {
        static_cast<void>(pull(table, ids));
        table.push(ids, std::vector<float>(ids.size() * 128, 1.0F));
        table.tick();
      }
      ADD_FAILURE() << "nothing was noticed";
    } catch (const Error& error) {
      errors[static_cast<std::size_t>(rank)] = std::string(to_string(error.code())) + ": " + error.what();
    }
    EXPECT_THROW(table.tick(), Error) << "the table goes on";
  });
  return errors;
}

// Both ranks have a file; either may notice first, and the other one is told.
TEST(TieredTable, DamageIsNoticedAndNamed) {
  const ScratchFolder folder;
  const std::vector<std::string> errors = errors_after(folder, [&] {
    int damaged = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const fs::path target = fs::read_symlink(entry.path(), gone);
      if (!gone && target.string().starts_with(folder.path().string())) {
        const int file = ::open(entry.path().c_str(), O_WRONLY);
        ASSERT_GE(file, 0);
        struct stat about {};
        ASSERT_EQ(::fstat(file, &about), 0);
        const std::vector<char> noise(1 << 20, 0x5A);
        for (off_t at = 0; at < about.st_size; at += static_cast<off_t>(noise.size())) {
          ASSERT_GT(::pwrite(file, noise.data(), noise.size(), at), 0);
        }
        ::fsync(file);
        ::close(file);
        ++damaged;
      }
    }
    EXPECT_EQ(damaged, 2);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("table \"table\""));
    EXPECT_THAT(error, HasSubstr("is not what was written there"));
  }
  EXPECT_THAT(errors[0] + errors[1], HasSubstr("corrupt: "));
}

TEST(TieredTable, AFullDiskIsNamed) {
  const ScratchFolder folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const std::vector<std::string> errors = errors_after(folder, [&] {
    const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("table \"table\""));
  }
  EXPECT_THAT(errors[0] + errors[1], HasSubstr("out_of_memory: "));
}

/// Starts the job, reads the rounds that it prints, and kills it after `life`. Returns the last round.
int round_of_killed_job(const fs::path& folder, const std::string& store, std::chrono::microseconds life) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string program = GRADWIRE_SAVING_JOB;
  std::string first = folder.string();
  std::string second = store;
  char* arguments[] = {program.data(), first.data(), second.data(), nullptr};
  pid_t job = 0;
  EXPECT_EQ(::posix_spawn(&job, program.c_str(), &actions, nullptr, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  pollfd first_save{.fd = ends[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&first_save, 1, 60000), 1);
  std::this_thread::sleep_for(life);
  EXPECT_EQ(::kill(job, SIGKILL), 0);
  int status = 0;
  EXPECT_EQ(::waitpid(job, &status, 0), job);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the job has ended by itself";
  std::string text;
  char letters[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], letters, sizeof letters)) > 0;) {
    text.append(letters, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int last = 0;
  for (std::size_t at = 0; at < text.size() && text.find('\n', at) != std::string::npos; at = text.find('\n', at) + 1) {
    last = std::stoi(text.substr(at));
  }
  return last;
}

// A load takes the last save that ended, or the one that was being made; all of its rows are of one round.
TEST(TieredTable, AKillLeavesTheLastSave) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const ScratchFolder scratch;
  const fs::path folder = scratch.path() / "saves";
  const std::string store = "file:" + scratch.path().string();
  int saved = 0;
  for (int i = 0; i < 12; ++i) {
    const int last = round_of_killed_job(folder, store, std::chrono::microseconds(20000 + random() % 400000));
    saved = std::max(saved, last);
    if (saved == 0) {
      continue;
    }
    run_tables(2, saving_job_options(store), [&](Table& table) {
      table.load(folder);
      const std::vector<float> rows = pull(table, all_ids(table));
      EXPECT_GE(rows[0], static_cast<float>(saved));
      EXPECT_LE(rows[0], static_cast<float>(saved + 1));
      EXPECT_EQ(std::count(rows.begin(), rows.end(), rows[0]), static_cast<std::ptrdiff_t>(rows.size()));
    });
    for (const fs::directory_entry& entry : fs::directory_iterator(scratch.path())) {
      EXPECT_EQ(entry.path(), folder) << "a scratch file stays";
    }
  }
  EXPECT_GT(saved, 2);
}

}  // namespace
}  // namespace gradwire::test

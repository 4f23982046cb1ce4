// Measures the memory of a session's tables while they are saved, restored and pushed to, in bytes from operator new
// and from the page pool, which has the rows.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/session.hpp"
#include "memory/process_pool.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace {

std::atomic<std::int64_t> live{0};
std::atomic<std::int64_t> given{0};  // total bytes

void count(void* memory) {
  const auto bytes = static_cast<std::int64_t>(malloc_usable_size(memory));
  given += bytes;
  live += bytes;
}

}  // namespace

// Replaces operator new of the C++ library in this whole program.
void* operator new(std::size_t bytes) {
  void* const memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  count(memory);
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) {
    live -= static_cast<std::int64_t>(malloc_usable_size(memory));
    std::free(memory);
  }
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { operator delete(memory); }

namespace gradwire::test {
namespace {

constexpr int kRanks = 4;
constexpr std::uint64_t kRows = 40'000;
constexpr std::uint32_t kWidth = 64;
constexpr double kTableBytes = 2.0 * sizeof(float) * kWidth * kRows;  // includes Adagrad's state
const SessionTableOptions kTable{
    .name = "users", .rows = kRows, .width = kWidth, .optimizer = RowOptimizer::adagrad, .learning_rate = 1};

// Pushes a gradient of 1 for each row, in many small steps; each rank pushes a part of a step's rows.
void train(Session& session, TableId table) {
  constexpr std::uint64_t kStepRows = 500;
  for (std::uint64_t first = 0; first < kRows; first += kStepRows) {
    std::vector<std::uint64_t> ids(kStepRows / kRanks);
    std::iota(ids.begin(), ids.end(), first + static_cast<std::uint64_t>(session.rank()) * ids.size());
    session.push(table, ids, std::vector<float>(ids.size() * kWidth, kRanks));
    session.finish();
  }
}

float first_of(Session& session, TableId table, std::uint64_t id) {
  std::vector<float> row(kWidth);
  EXPECT_TRUE(session.pull(table, std::span(&id, 1), row));
  return row[0];
}

// Measures how far the memory of all ranks rises above its start, in units of a table. A thread looks all the time.
class Peak {
 public:
  Peak()
      : looks_([this] {
          for (; !ends_; std::this_thread::sleep_for(std::chrono::microseconds(200))) {
            most_ = std::max(most_.load(), now());
          }
        }) {}
  Peak(const Peak&) = delete;
  Peak& operator=(const Peak&) = delete;
  ~Peak() {
    ends_ = true;
    looks_.join();
  }
  void begin() {
    before_ = now();
    most_ = before_.load();
  }
  [[nodiscard]] double tables() const { return static_cast<double>(most_ - before_) / kTableBytes; }
  [[nodiscard]] double left() const { return static_cast<double>(now() - before_) / kTableBytes; }

 private:
  static std::int64_t now() { return live + static_cast<std::int64_t>(memory::page_pool().statistics().in_use); }

  std::atomic<std::int64_t> before_{0};
  std::atomic<std::int64_t> most_{0};
  std::atomic<bool> ends_{false};
  std::thread looks_;
};

// The written data is a copy; meanwhile training copies only the pages that it writes to. Each rank reads all files,
// and keeps only its own rows. Mutations tried: files are made in memory, or read into it; a written checkpoint is kept
// until the next one.
TEST(TableMemory, OneCopyIsSavedAndOwnRowsAreRestored) {
  const ScratchFolder folder;
  Peak peak;
  std::barrier meet(kRanks);
  const auto measured = [&](const std::string& what, double at_most, Session& session, const auto& call) {
    meet.arrive_and_wait();
    if (session.rank() == 0) {
      peak.begin();
    }
    meet.arrive_and_wait();
    call();
    meet.arrive_and_wait();
    if (session.rank() == 0) {
      EXPECT_LE(peak.tables(), at_most) << what;
      std::printf("%s: %.2f tables\n", what.c_str(), peak.tables());
    }
  };
  run_ranks(kRanks, [&](std::shared_ptr<Transport> transport) {
    Session session(std::move(transport), Policy{});
    const TableId table = session.add_table(kTable);
    train(session, table);
    const float saved = first_of(session, table, 7);
    session.finish();
    measured("save", 0.25, session, [&] { session.save(folder.path() / "saved"); });
    measured("checkpoint", 1.25, session, [&] {
      session.checkpoint(folder.path(), {});
      train(session, table);
    });
    if (session.rank() == 0) {
      for (int wait = 0; wait < 1000 && peak.left() > 0.05; ++wait) {  // until all files are written
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      EXPECT_LE(peak.left(), 0.05) << "a written checkpoint takes no more memory";
      std::printf("left: %.2f tables\n", peak.left());
    }
    meet.arrive_and_wait();
    session.wait_for_checkpoint();
    EXPECT_NE(first_of(session, table, 7), saved);
    meet.arrive_and_wait();
  });
  run_ranks(kRanks, [&](std::shared_ptr<Transport> transport) {
    Session session(std::move(transport), Policy{});
    const TableId table = session.add_table(kTable);
    measured("restore", 1.4, session, [&] { EXPECT_EQ(session.restore(folder.path(), {}), kRows / 500 + 1); });
    for (const std::uint64_t id : {std::uint64_t{7}, kRows / 2, kRows - 1}) {
      EXPECT_EQ(first_of(session, table, id), -1) << "the value is from the time of checkpoint()";
    }
    meet.arrive_and_wait();
  });
}

// Mutation tried: each call adds up all earlier ones.
TEST(TableMemory, PushesTakeAsMuchAsTheyBring) {
  run_ranks(1, [](std::shared_ptr<Transport> transport) {
    Session session(std::move(transport), Policy{});
    const TableId table = session.add_table(kTable);
    const std::int64_t before = given;
    std::vector<std::uint64_t> ids(4);
    constexpr std::uint64_t kCalls = 1000;
    for (std::uint64_t call = 0; call < kCalls; ++call) {
      std::iota(ids.begin(), ids.end(), (997 * call) % (kRows - ids.size()));
      session.push(table, ids, std::vector<float>(ids.size() * kWidth, 1));
    }
    const double brought = static_cast<double>(kCalls * ids.size()) * kWidth * sizeof(float);
    EXPECT_LE(static_cast<double>(given - before), 10 * brought);
    std::printf("pushes: %.1f of what they bring\n", static_cast<double>(given - before) / brought);
    session.finish();
  });
}

}  // namespace
}  // namespace gradwire::test

// What pushes to a session's table take, in bytes that operator new gave.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "gradwire/session.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace {

std::atomic<std::int64_t> live{0};
std::atomic<std::int64_t> most{0};
std::atomic<std::int64_t> given{0};  // in all

void count(void* memory) {
  const auto bytes = static_cast<std::int64_t>(malloc_usable_size(memory));
  given += bytes;
  const std::int64_t now = live += bytes;
  for (std::int64_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
  }
}

}  // namespace

// In place of those of the C++ library, for all of this program.
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
constexpr double kTableBytes = 2.0 * sizeof(float) * kWidth * kRows;  // with what Adagrad keeps
const TableOptions kTable{
    .name = "users", .rows = kRows, .width = kWidth, .optimizer = RowOptimizer::adagrad, .learning_rate = 1};

// Tried by hand, red: each call adds up all that came before it.
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

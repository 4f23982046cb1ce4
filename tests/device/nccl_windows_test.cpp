// Tests windows that NCCL maps, over functions in place of NCCL's: ranks are threads, and a window is memory of the
// process. No NCCL that has such windows, and no GPU, ever ran this.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exchange/peers.hpp"
#include "memory/cuda_nccl_windows.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr std::size_t kBytes = 5000;

/// The functions in place of NCCL's share this. A communicator and a window are a pointer to the rank's number here.
struct Library {
  std::mutex mutex;
  std::map<int, void*> memory;  // by rank
  int allocated = 0;
  int added = 0;
  int fails_to_add = -1;  // a rank
  int unreachable = -1;   // a rank
  int without = -1;       // a rank whose communicator has no such windows
};
Library* library = nullptr;
int ranks[kRanks] = {0, 1, 2};
int rank_of(void* handle) { return *static_cast<int*>(handle); }

int allocate(void** data, std::size_t bytes) {
  const std::lock_guard lock(library->mutex);
  ++library->allocated;
  *data = ::operator new (bytes, std::align_val_t{4096});
  std::memset(*data, 0xA5, bytes);
  return 0;
}
int release(void* data) {
  const std::lock_guard lock(library->mutex);
  --library->allocated;
  ::operator delete (data, std::align_val_t{4096});
  return 0;
}
int add(void* communicator, void* data, std::size_t bytes, void** window, int flags) {
  const std::lock_guard lock(library->mutex);
  EXPECT_EQ(bytes % 4096, 0U);
  EXPECT_EQ(flags, 1);
  if (rank_of(communicator) == library->fails_to_add) {
    return 2;
  }
  library->added += rank_of(communicator) == library->without ? 0 : 1;
  library->memory[rank_of(communicator)] = data;
  *window = rank_of(communicator) == library->without ? nullptr : communicator;
  return 0;
}
int remove_window(void* communicator, void* window) {
  const std::lock_guard lock(library->mutex);
  EXPECT_EQ(communicator, window);
  --library->added;
  return 0;
}
int address(void* /*window*/, std::size_t offset, int rank, void** address) {
  const std::lock_guard lock(library->mutex);
  EXPECT_EQ(offset, 0U);
  *address = rank == library->unreachable ? nullptr : library->memory.at(rank);
  return 0;
}
const char* text(int /*result*/) { return "unhandled system error"; }
constexpr memory::NcclWindowFunctions kFunctions{allocate, release, add, remove_window, address, text};

/// Opens windows on all ranks, and returns why that failed, by rank.
std::vector<std::string> open_all(Library& all, std::vector<std::unique_ptr<memory::NcclPeerWindows>>& windows,
                                  const memory::NcclWindowFunctions* functions = &kFunctions) {
  library = &all;
  windows.resize(kRanks);
  std::vector<std::string> why(kRanks);
  run_ranks(kRanks, [&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    exchange::TransportPeers peers(*transport, std::chrono::seconds(30));
    windows[static_cast<std::size_t>(rank)] = memory::NcclPeerWindows::open(
        &ranks[rank], kBytes, rank, [&](const std::string& mine) { return peers.all_gather(mine, "windows"); },
        why[static_cast<std::size_t>(rank)], functions);
  });
  return why;
}

TEST(NcclWindows, EachRankHasAllOfThemAndGivesItsOwnBack) {
  Library all;
  std::vector<std::unique_ptr<memory::NcclPeerWindows>> windows;
  EXPECT_EQ(open_all(all, windows), std::vector<std::string>(kRanks));
  for (int of = 0; of < kRanks; ++of) {
    EXPECT_EQ(all.memory.at(of), windows[0]->window(of));
    const std::vector<std::byte> zeros(kBytes);
    EXPECT_EQ(std::memcmp(windows[0]->window(of), zeros.data(), kBytes), 0);
    for (const auto& rank : windows) {
      EXPECT_EQ(rank->window(of), windows[0]->window(of));
    }
  }
  EXPECT_EQ(all.added, kRanks);
  windows.clear();
  EXPECT_EQ(all.added, 0);
  EXPECT_EQ(all.allocated, 0);
}

TEST(NcclWindows, AllRanksFailTogetherAndGiveBackWhatTheyHave) {
  const auto fails = [](const char* because, const auto& spoil) {
    Library all;
    spoil(all);
    std::vector<std::unique_ptr<memory::NcclPeerWindows>> windows;
    for (const std::string& why : open_all(all, windows)) {
      EXPECT_THAT(why, HasSubstr(because));
    }
    EXPECT_EQ(windows[0], nullptr);
    EXPECT_EQ(all.added, 0);
    EXPECT_EQ(all.allocated, 0);
  };
  fails("rank 1: opening windows by NCCL: unhandled system error (ncclCommWindowRegister, 2)",
        [](Library& all) { all.fails_to_add = 1; });
  fails("rank 0: opening windows by NCCL: this communicator has no symmetric windows",
        [](Library& all) { all.without = 0; });
  fails("the memory of rank 2 cannot be written to", [](Library& all) { all.unreachable = 2; });
}

TEST(NcclWindows, StayWhereARankMayStillWriteToThem) {
  Library all;
  std::vector<std::unique_ptr<memory::NcclPeerWindows>> windows;
  EXPECT_EQ(open_all(all, windows), std::vector<std::string>(kRanks));
  windows[1]->leak();
  windows.clear();
  EXPECT_EQ(all.added, 1);
  EXPECT_EQ(all.allocated, 1);
  release(all.memory.at(1));
}

// The library of these tests is older than these windows.
TEST(NcclWindows, AnOlderNcclIsNamed) {
  Library all;
  std::vector<std::unique_ptr<memory::NcclPeerWindows>> windows;
  for (const std::string& why : open_all(all, windows, nullptr)) {
    EXPECT_THAT(why, HasSubstr("windows by NCCL need 2.29.2 or later"));
  }
}

}  // namespace
}  // namespace gradwire::test

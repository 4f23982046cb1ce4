// Tests at which calls the ranks exchange numbers, at which call the result counts, and where a host waits. The ports
// are a board in memory, on which a device posts its words when a test lets it come that far.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "drop_in/device_exchange.hpp"
#include "gradwire/error.hpp"

namespace gradwire::drop_in {
namespace {

using Words = std::vector<std::uint32_t>;

struct Board {
  int world;
  std::map<std::uint64_t, std::vector<Words>> posted = {};  // by exchange
};

// A device whose work of an exchange runs when the test calls run(), or when the host waits for it.
class BoardPort final : public ExchangePort {
 public:
  explicit BoardPort(Board& board) : board_(board) {}

  void begin(std::span<const std::uint32_t> mine, void* stream) override {
    ASSERT_FALSE(waiting_) << "one exchange at a time";
    waiting_ = Words(mine.begin(), mine.end());
    streams.push_back(stream);
  }
  void run() {
    if (waiting_) {
      board_.posted[exchange_].push_back(*std::exchange(waiting_, std::nullopt));
    }
  }
  [[nodiscard]] bool arrived() override { return static_cast<int>(board_.posted[exchange_].size()) == board_.world; }
  void finish(std::span<std::uint32_t> largest, std::chrono::milliseconds timeout) override {
    run();
    if (!arrived()) {
      throw Error(ErrorCode::timeout, "not in " + std::to_string(timeout.count()) + " ms", ErrorCause::world);
    }
    std::fill(largest.begin(), largest.end(), 0);
    for (const Words& words : board_.posted[exchange_]) {
      for (std::size_t i = 0; i < words.size(); ++i) {
        largest[i] = std::max(largest[i], words[i]);
      }
    }
    ++exchange_;
  }

  void meet(void* /*stream*/) override {}

  std::vector<void*> streams;

 private:
  Board& board_;
  std::uint64_t exchange_ = 0;
  std::optional<Words> waiting_;
};

struct Rank {
  explicit Rank(Board& board) : port(board) {}
  // Makes calls up to number `to`. Returns the numbers of those from which new values counted.
  std::vector<int> calls(int to) {
    std::vector<int> counted;
    while (call < to) {
      ++call;
      if (exchange.begin_call()) {
        counted.push_back(call);
        ++rounds;
      }
      exchange.end_call(&call);
    }
    return counted;
  }

  BoardPort port;
  DeviceExchange exchange{port, std::chrono::milliseconds(7)};
  int call = 0;
  std::uint64_t rounds = 0;  // exchanges whose result has counted
};

constexpr auto kGate = DeviceExchange::kGate;
constexpr auto kRoles = DeviceExchange::kRoles;
constexpr auto kNoValue = DeviceExchange::kNoValue;

// Mutations tried, each fails here: the result counts at once; an exchange every 63rd call; the sections overlap.
TEST(DeviceExchange, AResultCountsSixtyFourCallsLaterOnEveryRank) {
  Board board{.world = 2};
  Rank fast(board);
  Rank slow(board);
  fast.exchange.mine(kGate)[191] = 5;
  slow.exchange.mine(kGate)[191] = 9;
  fast.exchange.mine(kRoles)[0] = 3;
  slow.exchange.mine(kRoles)[0] = 2;
  fast.exchange.mine(kRoles)[63] = 0;  // the other rank says nothing

  EXPECT_EQ(fast.calls(63), std::vector<int>{});
  EXPECT_TRUE(fast.port.streams.empty());
  EXPECT_EQ(fast.calls(127), std::vector<int>{});
  EXPECT_EQ(fast.port.streams, std::vector<void*>{&fast.call});
  EXPECT_EQ(slow.calls(64), std::vector<int>{}) << "this rank is 63 calls behind";
  fast.port.run();
  slow.port.run();
  EXPECT_TRUE(fast.port.arrived());
  EXPECT_EQ(fast.exchange.agreed(kRoles)[0], kNoValue) << "it does not count before its call, although it is there";
  fast.exchange.mine(kGate)[191] = 1;  // for the next exchange

  for (Rank* rank : {&fast, &slow}) {
    EXPECT_EQ(rank->calls(128), std::vector<int>{128});
    EXPECT_EQ(rank->exchange.agreed(kGate)[191], 9U);
    EXPECT_EQ(rank->exchange.agreed(kRoles)[0], 3U);
    EXPECT_EQ(rank->exchange.agreed(kRoles)[63], kNoValue) << "one rank has nothing to say";
    EXPECT_EQ(rank->exchange.agreed(kGate)[0], kNoValue);
    EXPECT_EQ(rank->rounds, 1U);
    EXPECT_EQ(rank->exchange.waits(), 0U);
    rank->port.run();
  }
  for (Rank* rank : {&fast, &slow}) {
    EXPECT_EQ(rank->calls(192), std::vector<int>{192});
    EXPECT_EQ(rank->exchange.agreed(kGate)[191], 9U) << "the other rank has said the same again";
  }
}

// Mutation tried: a wait is not counted.
TEST(DeviceExchange, AHostFarAheadWaitsOnlyWhereTheResultCounts) {
  Board board{.world = 2};
  Rank rank(board);
  Rank other(board);
  EXPECT_EQ(other.calls(127), std::vector<int>{});
  other.port.run();
  EXPECT_EQ(rank.calls(127), std::vector<int>{}) << "its device has done nothing yet, and no call waits for it";
  EXPECT_EQ(rank.exchange.waits(), 0U);
  EXPECT_EQ(rank.calls(128), std::vector<int>{128});
  EXPECT_EQ(rank.exchange.waits(), 1U);
}

TEST(DeviceExchange, AMissingRankIsAnError) {
  Board board{.world = 2};
  Rank rank(board);
  rank.calls(127);
  try {
    rank.calls(128);
    FAIL() << "the other rank has made no call";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_STREQ(error.what(), "not in 7 ms");
  }
}

// Mutation tried: an exchange is begun inside the group.
TEST(DeviceExchange, AGroupOfManyCallsExchangesBehindItself) {
  Board board{.world = 1};
  Rank rank(board);
  const auto group = [&](int calls) {
    int counted = 0;
    for (int i = 0; i < calls; ++i) {
      const bool counts = rank.exchange.begin_call();
      counted += counts ? 1 : 0;
      rank.rounds += counts ? 1 : 0;
      EXPECT_EQ(rank.port.streams.size(), rank.rounds) << "none is begun inside";
    }
    rank.exchange.end_call(nullptr);
    return counted;
  };
  EXPECT_EQ(group(150), 0);
  EXPECT_EQ(rank.port.streams.size(), 1U);
  EXPECT_EQ(rank.calls(63), std::vector<int>{}) << "calls 151 to 213";
  EXPECT_EQ(group(100), 1) << "at call 214";
  EXPECT_EQ(rank.port.streams.size(), 2U);
}

}  // namespace
}  // namespace gradwire::drop_in

// Tests the bytes that tables of a session send and save: files of earlier builds must stay readable.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "exchange/peers.hpp"
#include "session/parts/tables/session_tables.hpp"
#include "session/state/state_file.hpp"
#include "tests/support/hex.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/sent_bytes.hpp"
#include "wire/crc32c.hpp"

namespace gradwire::test {
namespace {

using session::SavedState;
using session::SessionTables;

/// The bytes that a rank sent and saved.
struct Told {
  std::string sent;
  std::string saved;  // SIZE:CRC-32C of the state, which holds the tables
};

std::string state_of(SessionTables& tables) {
  SavedState state;
  state.step = 3;
  state.fingerprint = "0123456789abcdef";
  state.tables = tables.save();
  std::stringstream stream;
  session::write_state(state, stream);
  return stream.str();
}

std::string sum_of(const std::string& bytes) {
  char crc[16];
  std::snprintf(crc, sizeof crc, "%08x", wire::crc32c(std::as_bytes(std::span(bytes))));
  return std::to_string(bytes.size()) + ":" + crc;
}

void train(SessionTables& tables, exchange::Peers& peers, int rank, std::optional<double> weight) {
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (std::uint32_t table = 0; table < 2; ++table) {
      const std::size_t width = table == 0 ? 3 : 2;
      std::vector<std::uint64_t> ids;
      for (std::uint64_t i = 0; i < 9; ++i) {
        ids.push_back((7 * i + step + static_cast<std::uint64_t>(rank)) % 20);
      }
      ids.push_back(ids.front());
      std::vector<float> rows(ids.size() * width);
      tables.pull(peers, table, ids, rows);
      for (float& value : rows) {
        value += 0.25F;
      }
      tables.push(table, ids, rows);
    }
    tables.exchange_pushes(peers, Reduction::mean, weight);
    tables.count();
  }
}

SessionTables two_tables(const std::string& codec) {
  SessionTables tables;
  tables.add({.name = "users",
              .rows = 20,
              .width = 3,
              .optimizer = RowOptimizer::adagrad,
              .initial_scale = 0.5F,
              .seed = 7,
              .codec = codec,
              .gradient_codec = codec,
              .copies = 2});
  tables.add({.name = "items", .rows = 20, .width = 2, .codec = codec, .gradient_codec = codec, .copies = 2});
  return tables;
}

std::vector<Told> run_job(const std::string& codec, bool weighted) {
  std::vector<Told> told(3);
  run_ranks(3, [&](std::shared_ptr<Transport> transport) {
    SentBytes log(std::move(transport));
    exchange::TransportPeers peers(log, std::chrono::seconds(60));
    const int rank = log.rank();
    SessionTables tables = two_tables(codec);
    tables.enter({{4, 5, 9}, {0, 0, 1}}, rank);
    train(tables, peers, rank, weighted ? std::optional(rank + 0.5) : std::nullopt);
    // Process 4 has ended, and process 1 has come.
    if (rank == 0) {
      tables = two_tables(codec);
    }
    tables.enter({{1, 5, 9}, {0, 1, 1}}, rank);
    tables.move(peers, rank > 0);
    tables.install();
    train(tables, peers, rank, {});
    told[static_cast<std::size_t>(rank)] = {log.told(), sum_of(state_of(tables))};
  });
  return told;
}

TEST(SessionTableGolden, MessagesAndStates) {
  const auto expect = [](const std::string& codec, bool weighted, const std::array<Told, 3>& golden) {
    const std::vector<Told> told = run_job(codec, weighted);
    for (std::size_t rank = 0; rank < golden.size(); ++rank) {
      EXPECT_EQ(told[rank].sent, golden[rank].sent) << codec << ", rank " << rank;
      EXPECT_EQ(told[rank].saved, golden[rank].saved) << codec << ", rank " << rank;
    }
  };
  expect("exact", true,
         {{{"3027:b1d2d7a1 2899:69b9dc58", "617:27eb067f"},
           {"3308:e0823312 3034:1ae646aa", "473:da3e34f2"},
           {"3414:d8022c10 2764:63909b02", "425:6ac824a5"}}});
  expect("bf16", false,
         {{{"2515:ab8fdefe 2447:2fcaff20", "617:10cb3dbb"},
           {"2796:33337c16 2532:2bf08f73", "473:97250a13"},
           {"2942:19b927b8 2422:5acb3353", "425:0fa0ffdf"}}});
  expect("int8", true,
         {{{"2491:1eeb0a88 2429:d9b32162", "617:4f481497"},
           {"2772:bc61ba2b 2509:c99f58fd", "473:06d4c174"},
           {"2922:dc9ba675 2415:fb1676ae", "425:5e2a4aa2"}}});
}

// Version 4 of docs/reference/state-format.md: two tables of one rank.
constexpr const char* kState =
    "67726164776972650400000000000000ed0000000000000000000000010000000300000000000000000000000000f03f"
    "000100100000003031323334353637383961626364656600000000000000000000000000000000000000000200000005"
    "00000075736572730600000000000000020000000100000048185bee5726d57803000000000000000000000000000000"
    "030000000000000005000000000000000ad7233c0ad723bc0000803e0000803d0ad723bc0ad723bc0000804200001041"
    "0ad723bc0ad723bc0000803f00008040050000006974656d730400000000000000010000000000000048185bee5726d5"
    "7801000000000000000300000000000000000000404e4edda63f2d0737";

void make_golden(SessionTables& tables) {
  tables.add({.name = "users", .rows = 6, .width = 2, .optimizer = RowOptimizer::adagrad, .copies = 1});
  tables.add({.name = "items", .rows = 4, .width = 1, .learning_rate = 1, .copies = 1});
  tables.enter({{3}, {}}, 0);
}

void train_golden(SessionTables& tables, exchange::Peers& peers) {
  const std::vector<std::uint64_t> ids{5, 0, 3};
  tables.push(0, ids, std::vector<float>{1, 2, -0.5F, 0.25F, 8, 3});
  tables.push(1, std::span(ids).last(1), std::vector<float>{-2});
  tables.exchange_pushes(peers, Reduction::sum, {});
  tables.count();
}

TEST(SessionTableGolden, StatesOfEarlierBuildsAreRead) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    exchange::TransportPeers peers(*transport, std::chrono::seconds(60));
    SessionTables trained;
    make_golden(trained);
    train_golden(trained, peers);
    EXPECT_EQ(hex_of(state_of(trained)), kState);

    SessionTables loaded;
    make_golden(loaded);
    SessionTables::Loading loading(loaded);
    std::stringstream stream(bytes_of(kState));
    const SavedState state = session::read_state(stream, "a file", &loading);
    EXPECT_EQ(state.step, 3U);
    loaded.load(std::move(loading));
    for (int more = 0; more < 2; ++more) {  // includes Adagrad's state
      for (std::uint32_t table = 0; table < 2; ++table) {
        std::vector<std::uint64_t> ids(table == 0 ? 6 : 4);
        std::iota(ids.begin(), ids.end(), 0U);
        std::vector<float> before(ids.size() * (table == 0 ? 2 : 1));
        std::vector<float> after(before.size());
        trained.pull(peers, table, ids, before);
        loaded.pull(peers, table, ids, after);
        EXPECT_EQ(before, after);
      }
      train_golden(trained, peers);
      train_golden(loaded, peers);
    }
  });
}

}  // namespace
}  // namespace gradwire::test

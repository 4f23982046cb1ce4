// Tests that bad input is an error only for the caller, and that a fault ends the table on every rank, with a reason
// and without a hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "table/table_message.hpp"
#include "table_support.hpp"
#include "tests/support/faulty_transport.hpp"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

/// Returns the Error that `call` throws, as "code: text".
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

TEST(TableErrors, WrongArgumentsAreNamedAndChangeNothing) {
  run_tables(2, table_options(10, 2), [](Table& table) {
    std::vector<float> rows(4);
    EXPECT_THAT(error_of([&] {
                  table.pull(Ids{3, 10}, rows);
                }),
                AllOf(HasSubstr("invalid_argument"), HasSubstr("id 10 (number 1 of 2)"), HasSubstr("10 rows")));
    EXPECT_THAT(error_of([&] { table.push(Ids{~0ULL}, std::vector<float>(2)); }), HasSubstr("outside the table"));
    EXPECT_THAT(error_of([&] { table.pull(Ids{3}, rows); }), HasSubstr("need 2 elements, not 4"));
    EXPECT_THAT(error_of([&] { table.push(Ids{3}, rows); }), HasSubstr("need 2 elements, not 4"));
    for (const float bad : {NAN, INFINITY}) {
      EXPECT_THAT(error_of([&] {
                    table.push(Ids{3, 7}, std::vector<float>{1, 1, 1, bad});
                  }),
                  AllOf(HasSubstr("id 7"), HasSubstr("NaN")));
    }
    EXPECT_THAT(error_of([&] { table.prefetch(Ids{3}); }), HasSubstr("set cache_bytes"));
    EXPECT_THAT(error_of([&] { static_cast<void>(table.owner(10)); }), HasSubstr("outside"));
    table.synchronize();
    EXPECT_EQ(pull(table, {3, 7}), (std::vector<float>(4)));
  });
}

TEST(TableErrors, AGradientThatItsCodecMakesInfiniteIsNotSent) {
  for (const char* codec : {"exact", "bf16", "int8"}) {
    TableOptions options = table_options(40, 2);
    options.gradient_codec = codec;
    run_tables(2, options, [&](Table& table) {
      Ids ids = all_ids(table);
      std::vector<float> gradients(80);
      const std::uint64_t foreign =
          *std::find_if(ids.begin() + 20, ids.end(), [&](std::uint64_t id) { return table.owner(id) != table.rank(); });
      gradients[2 * foreign] = 3.4e38F;
      if (table.rank() == 0) {
        const std::string error = error_of([&] { table.push(ids, gradients); });
        if (std::string(codec) == "bf16") {
          EXPECT_THAT(error, AllOf(HasSubstr("invalid_argument"), HasSubstr("push: the row for id"),
                                   HasSubstr(" " + std::to_string(foreign) + " "), HasSubstr("bf16")));
        } else {
          EXPECT_EQ(error, "no error") << codec;
        }
      }
      table.synchronize();
      const std::vector<float> rows = pull(table, all_ids(table));
      EXPECT_TRUE(std::all_of(rows.begin(), rows.end(), [](float x) { return std::isfinite(x); })) << codec;
      EXPECT_EQ(table.statistics().rows_nonfinite, 0U);
    });
  }
}

TEST(TableErrors, OwnersCountRowsThatOverflowed) {
  run_tables(2, table_options(40, 2), [](Table& table) {
    table.push(Ids{3, 5}, std::vector<float>{0, 3e38F, 1, 1});  // both ranks push this
    table.synchronize();
    EXPECT_EQ(table.statistics().rows_nonfinite, table.owner(3) == table.rank() ? 1U : 0U);
    table.synchronize();
    if (table.rank() == 0) {
      table.assign(Ids{3}, std::vector<float>{1, 1});
    }
    table.synchronize();
    EXPECT_EQ(table.statistics().rows_nonfinite, 0U);
  });
}

std::vector<std::string> make_with(const std::vector<TableOptions>& options) {
  std::vector<std::string> errors(options.size());
  run_ranks(static_cast<int>(options.size()), [&](const std::shared_ptr<Transport>& transport) {
    const auto rank = static_cast<std::size_t>(transport->rank());
    errors[rank] = error_of([&] { const Table table(transport, options[rank]); });
  });
  return errors;
}

TEST(TableErrors, EveryRankLearnsOfADifferentOption) {
  const std::vector<std::pair<const char*, void (*)(TableOptions&)>> changes{
      {"width", [](TableOptions& o) { o.width = 8; }},
      {"rows", [](TableOptions& o) { o.rows = 8; }},
      {"optimizer", [](TableOptions& o) { o.optimizer = RowOptimizer::adagrad; }},
      {"learning_rate", [](TableOptions& o) { o.learning_rate = 0.3F; }},
      {"seed", [](TableOptions& o) { o.seed = 8; }},
      {"initial_scale", [](TableOptions& o) { o.initial_scale = 1; }},
      {"codec", [](TableOptions& o) { o.codec = "int8"; }},
      {"gradient_codec", [](TableOptions& o) { o.gradient_codec = "bf16"; }},
      {"staleness", [](TableOptions& o) { o.staleness = TableOptions::kUnbounded; }},
      {"read_own_writes", [](TableOptions& o) { o.read_own_writes = false; }},
      {"name", [](TableOptions& o) { o.name = "other"; }}};
  for (const auto& [name, change] : changes) {
    std::vector<TableOptions> options(3, table_options());
    change(options[2]);
    for (const std::string& error : make_with(options)) {
      EXPECT_THAT(error, AllOf(HasSubstr("mismatch"), HasSubstr("rank 2 has " + std::string(name)))) << name;
    }
  }
}

TEST(TableErrors, EveryRankLearnsWhyOneCannotMakeItsPart) {
  const std::vector<std::tuple<const char*, const char*, void (*)(TableOptions&)>> changes{
      {"out_of_memory", "cache_bytes", [](TableOptions& o) { o.cache_bytes = 1ULL << 60U; }},
      {"invalid_argument", "cache_bytes = 5 holds no row", [](TableOptions& o) { o.cache_bytes = 5; }},
      {"invalid_argument", "width = 0", [](TableOptions& o) { o.width = 0; }},
      {"unsupported", "int4", [](TableOptions& o) { o.codec = "int4"; }},
      {"invalid_argument", "files are named", [](TableOptions& o) { o.name = "a/b"; }},
      {"invalid_argument", "learning_rate", [](TableOptions& o) { o.learning_rate = NAN; }},
      {"invalid_argument", "timeout", [](TableOptions& o) { o.timeout = {}; }}};
  for (const auto& [code, text, change] : changes) {
    std::vector<TableOptions> options(3, table_options());
    change(options[1]);
    const std::vector<std::string> errors = make_with(options);
    EXPECT_THAT(errors[1], AllOf(HasSubstr(code), HasSubstr(text)));
    for (const int other : {0, 2}) {
      EXPECT_THAT(errors[static_cast<std::size_t>(other)], AllOf(HasSubstr("failed on rank 1"), HasSubstr(text)));
    }
  }
}

TEST(TableErrors, ARankThatThrowsEndsTheOthersWaits) {
  std::atomic<int> ended = 0;
  const auto errors = run_ranks_catching(make_inproc_world(3), [&](const std::shared_ptr<Transport>& transport) {
    try {
      Table table(transport, table_options());
      if (table.rank() == 1) {
        throw std::runtime_error("the model is broken");
      }
      EXPECT_THAT(error_of([&] {
                    for (;;) {  // rank 1 never ticks
                      table.tick();
                      static_cast<void>(pull(table, all_ids(table)));
                    }
                  }),
                  AllOf(HasSubstr("aborted"), HasSubstr("rank 1")));
      EXPECT_THAT(error_of([&] { table.tick(); }), HasSubstr("rank 1")) << "later calls throw it too";
      ++ended;
    } catch (const Error& error) {  // the error came while the table was being made
      EXPECT_EQ(error.code(), ErrorCode::aborted);
      ++ended;
    }
  });
  EXPECT_EQ(ended, 2);
  EXPECT_NE(errors[1], nullptr);
}

TEST(TableErrors, ARankThatDiesWhileServingIsNamedAfterTheTimeout) {
  using transport::Fault;
  auto world = make_inproc_world(3);
  // Rank 1 dies in the second clock, when all ranks have made the table: it sends nothing more, and the others are not
  // told.
  world[1] = transport::make_faulty(world[1], {{.kind = Fault::Kind::kill, .rank = 1, .nth = 30}});
  std::vector<std::string> texts(3);
  const auto errors = run_ranks_catching(world, [&](const std::shared_ptr<Transport>& transport) {
    TableOptions options = table_options();
    options.timeout = std::chrono::seconds(5);  // ranks that share a core may begin late
    Table table(transport, options);
    texts[static_cast<std::size_t>(table.rank())] = error_of([&] {
      for (int i = 0; i < 100; ++i) {
        table.push(all_ids(table), std::vector<float>(4000, 1.0F));
        table.tick();
        // The other ranks pull only rows of rank 1, so they wait for no other rank.
        Ids ids = all_ids(table);
        std::erase_if(ids, [&](std::uint64_t id) { return table.rank() != 1 && table.owner(id) != 1; });
        static_cast<void>(pull(table, ids));
      }
    });
  });
  // The rank that gives up first tells the others.
  for (const int rank : {0, 2}) {
    EXPECT_THAT(texts[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("waited 5000 ms"), HasSubstr("rows of rank 1"), HasSubstr("; rank 1 is silent;")))
        << rank;
  }
  EXPECT_NE(texts[1], "no error");
}

TEST(TableErrors, AWaitForOnesOwnTextToLeaveSaysSo) {
  using transport::Fault;
  auto world = make_inproc_world(2);
  // Rank 0's second text, which belongs to synchronize(), does not leave.
  world[0] = transport::make_faulty(
      world[0], {{.kind = Fault::Kind::delay, .rank = 0, .nth = 1, .tag = 0, .delay = std::chrono::hours(1)}});
  std::vector<std::string> texts(2);
  run_ranks_catching(world, [&](const std::shared_ptr<Transport>& transport) {
    TableOptions options = table_options();
    options.timeout = std::chrono::seconds(transport->rank() == 0 ? 2 : 60);
    Table table(transport, options);
    texts[static_cast<std::size_t>(table.rank())] = error_of([&] { table.synchronize(); });
  });
  EXPECT_THAT(texts[0],
              ContainsRegex("synchronize waited 2000 ms for [1-9][0-9]* bytes in [1-9][0-9]* messages to leave"));
  EXPECT_THAT(texts[1], HasSubstr("aborted"));
}

TEST(TableErrors, ADamagedMessageIsNoticed) {
  using transport::Fault;
  auto world = make_inproc_world(2);
  world[0] = transport::make_faulty(world[0], {{.kind = Fault::Kind::corrupt, .rank = 0, .nth = 2, .offset = 0}});
  const auto errors = run_ranks_catching(world, [&](const std::shared_ptr<Transport>& transport) {
    Table table(transport, table_options());
    table.synchronize();
    table.synchronize();
  });
  EXPECT_TRUE(errors[0] != nullptr && errors[1] != nullptr);
}

TEST(TableErrors, ADamagedSizeTakesNoMemory) {
  using transport::Fault;
  auto world = make_inproc_world(2);
  // This damages the head of rank 0's second text: the upper half of its payload's size.
  world[0] = transport::make_faulty(
      world[0],
      {{.kind = Fault::Kind::corrupt, .rank = 0, .nth = 1, .tag = 0, .offset = sizeof(table::MessageHead) - 3}});
  std::vector<std::string> texts(2);
  run_ranks_catching(world, [&](const std::shared_ptr<Transport>& transport) {
    texts[static_cast<std::size_t>(transport->rank())] = error_of([&] {
      Table table(transport, table_options());  // rank 1 may still be in this constructor
      table.synchronize();
    });
  });
  EXPECT_THAT(texts[1], AllOf(HasSubstr("corrupt"), HasSubstr("message of rank 0"), HasSubstr("its head is wrong")));
  EXPECT_THAT(texts[0], HasSubstr("aborted"));
}

TEST(TableErrors, OnlyTheMakersThreadMayCallWhereMpiSaysSo) {
  TableOptions options = table_options();
  options.threading = Threading::main_thread;
  run_tables(2, options, [](Table& table) {
    std::string text;
    std::thread([&] { text = error_of([&] { table.tick(); }); }).join();
    EXPECT_THAT(text, HasSubstr("MPI_THREAD_MULTIPLE"));
    table.tick();
    static_cast<void>(pull(table, all_ids(table)));
  });
}

TEST(TableErrors, AbortEndsItEverywhere) {
  std::vector<std::string> texts(2);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    texts[static_cast<std::size_t>(transport->rank())] = error_of([&] {
      Table table(transport, table_options());
      if (table.rank() == 0) {
        table.abort("had enough");
      }
      for (;;) {
        table.tick();
        static_cast<void>(pull(table, all_ids(table)));
      }
    });
  });
  EXPECT_THAT(texts[0], HasSubstr("had enough"));
  EXPECT_THAT(texts[1], HasSubstr("had enough"));
}

}  // namespace
}  // namespace gradwire::test

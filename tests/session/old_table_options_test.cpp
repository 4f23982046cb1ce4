// Tests options of a session's tables in their old form without types: they work, and the compiler warns.
#include <gtest/gtest.h>

#include <concepts>
#include <string>

#include "gradwire/policy.hpp"
#include "gradwire/session.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

// Options that a kind of table does not have do not compile.
template <class Options>
concept HasReads = requires(Options options) {
  options.staleness;
  options.cache_bytes;
  options.read_own_writes;
};
template <class Options>
concept HasWaits = requires(Options options) {
  options.timeout;
  options.threading;
};
template <class Options>
concept CountsCopies = requires(Options options) {
  { options.copies } -> std::same_as<std::uint32_t&>;
};
static_assert(HasReads<TableOptions> && HasWaits<TableOptions> && !CountsCopies<TableOptions>);
static_assert(!HasReads<SessionTableOptions> && !HasWaits<SessionTableOptions> && CountsCopies<SessionTableOptions>);

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

TEST(OldTableOptions, MakeATableOfASession) {
  run_ranks(2, [](std::shared_ptr<Transport> transport) {
    Session session(std::move(transport), Policy{});
    TableOptions options{.name = "users", .rows = 10, .width = 1, .learning_rate = 1, .copies = 2};
    const TableId two = session.add_table(options);
    options.name = "items";
    options.copies = 1;
    const TableId one = session.add_table(options);
    const std::vector<std::uint64_t> ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    for (const TableId table : {two, one}) {
      session.push(table, ids, std::vector<float>(10, 1));
    }
    session.finish();
    EXPECT_EQ(session.table_statistics(two).rows_held, 10U);
    EXPECT_LT(session.table_statistics(one).rows_held, 10U);
    EXPECT_NE(session.explain().find("table \"users\": 10 rows of 1 f32, on 2 ranks each"), std::string::npos);
  });
}

TEST(OldTableOptions, AreRefusedWhereTheyAskForWhatIsNotThere) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    const auto refused = [](const std::string& part, ErrorCode code, const auto& call) {
      const Error error = error_of(call);
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    };
    Session session(transport, Policy{});
    const TableOptions plain{.name = "t", .rows = 10, .width = 2};
    for (const char* option : {"staleness", "cache_bytes", "read_own_writes"}) {
      TableOptions other = plain;
      (option[0] == 's' ? other.staleness : other.cache_bytes) = option[0] == 'r' ? 0 : 4096;
      other.read_own_writes = option[0] != 'r';
      refused("table \"t\": " + std::string(option) + " is for a Table of its own", ErrorCode::invalid_argument,
              [&] { session.add_table(other); });
    }
    const Policy policy = Policy::parse("[[rule]]\nmatch = \"t\"\nsync = { rows = true, staleness = 1 }\n", "p");
    refused("staleness is for a Table", ErrorCode::invalid_argument,
            [&] { session.add_table(table_options(policy, "t", plain)); });
    TableOptions copies = plain;
    copies.copies = 2;
    refused("copies = 2: a Table ends with any of its ranks", ErrorCode::unsupported,
            [&] { Table(make_inproc_world(1)[0], copies); });
  });
}

#pragma GCC diagnostic pop

}  // namespace
}  // namespace gradwire::test

// Tests that a rule for rows becomes the options of a table, and that a request that a table cannot serve is an error
// that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/policy.hpp"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kRowsPolicy = R"(
strict = true
[defaults]
codec = "exact"
small = "off"
[[rule]]
match = "embed.users"
codec = "int8"
second_hop = "bf16"
sync = { rows = true, staleness = 16 }
[[rule]]
match = "embed.*"
min_bytes = "1MiB"
sync = { rows = true, staleness = 0 }
)";

TEST(TableOptionsOfPolicy, TheFirstMatchingRuleSaysWhatTheTableDoes) {
  const Policy policy = Policy::parse(kRowsPolicy, "p");
  const TableOptions base{
      .name = "users", .rows = 1U << 20U, .width = 8, .learning_rate = 0.5F, .codec = "int8", .staleness = 99};
  const TableOptions users = table_options(policy, "embed.users", base);
  EXPECT_EQ(users.gradient_codec, "int8");
  EXPECT_EQ(users.codec, "bf16");
  EXPECT_EQ(users.staleness, 16U);
  EXPECT_EQ(users.name, "users");
  EXPECT_EQ(users.rows, base.rows);
  EXPECT_EQ(users.learning_rate, 0.5F);
  const TableOptions items = table_options(policy, "embed.items", base);
  EXPECT_EQ(items.codec, "exact");
  EXPECT_EQ(items.gradient_codec, "exact");
  EXPECT_EQ(items.staleness, 0U);
}

TEST(TableOptionsOfPolicy, ARuleNamesTheStore) {
  const auto options_of = [](const std::string& more) {
    return table_options(
        Policy::parse("[[rule]]\nmatch = \"x\"\ncodec = \"exact\"\nsync = { rows = true, staleness = 0" + more + " }",
                      "p"),
        "x", {.rows = 100, .width = 4, .store = "file:/base", .memory = 5 << 20});
  };
  const TableOptions named = options_of(", store = \"file:/scratch\", memory = \"512MiB\"");
  EXPECT_EQ(named.store, "file:/scratch");
  EXPECT_EQ(named.memory, 512U << 20U);
  const TableOptions base = options_of("");
  EXPECT_EQ(base.store, "file:/base");
  EXPECT_EQ(base.memory, 5U << 20U);
  const auto error_of = [](const auto& call) {
    try {
      static_cast<void>(call());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of([&] { return options_of(", store = \"file:/scratch\""); }),
              HasSubstr("write store = \"file:DIR\" and memory"));
  EXPECT_THAT(
      error_of([] {
        return Policy::parse("[[rule]]\nmatch = \"x\"\nsync = { every = 4, store = \"file:/x\", memory = \"1MiB\" }");
      }),
      HasSubstr("store and memory belong to { rows = true }"));
  for (const auto& [store, memory, text] :
       {std::tuple("disk:/x", 8 << 20, "store = \"disk:/x\" is unknown"),
        std::tuple("file:/x", 0, "needs the bytes of memory"), std::tuple("", 8 << 20, "needs a store")}) {
    SessionTableOptions options{.rows = 10, .width = 2, .store = store, .memory = static_cast<std::uint64_t>(memory)};
    run_ranks(1, [&](std::shared_ptr<Transport> transport) {
      Session session(std::move(transport), Policy{}, {});
      EXPECT_THAT(error_of([&] { return session.add_table(options); }), HasSubstr(text));
    });
  }
}

TEST(TableOptionsOfPolicy, MistakesNameTheTensorAndTheRule) {
  const auto error_of = [](const std::string& text, const TableOptions& base = {.rows = 100, .width = 4}) {
    try {
      static_cast<void>(table_options(Policy::parse(text, "p"), "embed.x", base));
    } catch (const Error& error) {
      return std::string(to_string(error.code())) + ": " + error.what();
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of("[[rule]]\nmatch = \"head\"\nsync = { rows = true, staleness = 1 }\n"),
              AllOf(HasSubstr("invalid_argument"), HasSubstr("table \"embed.x\": no rule matches it"),
                    HasSubstr("match = \"embed.x\" and sync = { rows = true")));
  EXPECT_THAT(error_of("[[rule]]\nmatch = \"embed.*\"\ncodec = \"int8\"\n[[rule]]\nmatch = \"*.x\"\nsync = { rows "
                       "= true, staleness = 1 }\n"),
              HasSubstr("rule 1 at p:1 matches it first, with sync step"));
  EXPECT_THAT(error_of(kRowsPolicy), HasSubstr("no rule matches it")) << "too small for the second rule";
  const std::string rows = "[[rule]]\nmatch = \"embed.x\"\nsync = { rows = true, staleness = 1 }\n";
  EXPECT_EQ(error_of(rows + "codec = \"bf16\"\n"), "no error");
  EXPECT_THAT(error_of(rows + "codec = \"topk(1%)+int8\"\n"),
              AllOf(HasSubstr("unsupported"), HasSubstr("\"embed.x\""), HasSubstr("rule 1"), HasSubstr("+int8"),
                    HasSubstr("use exact, bf16 or int8")));
  EXPECT_THAT(error_of(rows + "codec = \"int8\"\nsecond_hop = \"int4\"\n"), HasSubstr("no codec \"int4\""));
  EXPECT_THAT(error_of(rows + "codec = \"int8\"\nerror_feedback = \"on\"\n"), HasSubstr("no error feedback"));
  EXPECT_THAT(error_of(rows + "codec = \"int8\"\nwarmup = [{ until_step = 5, codec = \"exact\" }]\n"),
              HasSubstr("no warmup"));
}

TEST(TableOptionsOfPolicy, SayHowRowsOfASessionTravel) {
  const SessionTableOptions base{.name = "items", .rows = 1U << 20U, .width = 8, .learning_rate = 0.5F, .copies = 3};
  const Policy policy = Policy::parse(
      "[[rule]]\nmatch = \"embed.*\"\ncodec = \"int8\"\nsecond_hop = \"bf16\"\nsync = { rows = true, staleness = 0 }\n",
      "p");
  const SessionTableOptions items = session_table_options(policy, "embed.items", base);
  EXPECT_EQ(items.gradient_codec, "int8");
  EXPECT_EQ(items.codec, "bf16");
  EXPECT_EQ(items.learning_rate, 0.5F);
  EXPECT_EQ(items.copies, 3U);
  try {
    static_cast<void>(session_table_options(Policy::parse(kRowsPolicy, "p"), "embed.users", base));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("table \"items\": staleness is for a Table of its own"));
  }
}

TEST(TableOptionsOfPolicy, OnePolicyServesASessionAndATable) {
  const Policy policy = Policy::parse(kRowsPolicy, "p");  // strict: rules for tables are not reported as unused
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> gradient(1000, 1.0F);
    Session session(transport, policy);
    const TensorId id = session.add("head", view(gradient.data(), gradient.size()));
    session.ready(id);
    session.finish();
    EXPECT_EQ(gradient[7], 1.0F);
  });
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Table table(transport, table_options(policy, "embed.users", {.name = "users", .rows = 100, .width = 4}));
    EXPECT_EQ(table.options().staleness, 16U);
    table.synchronize();
  });
}

}  // namespace
}  // namespace gradwire::test

// Damages the facts that ranks send and the kernel's files about a host: they are read or refused, and the report made
// from them is valid text.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "cluster.hpp"
#include "plugins/mpi_doctor/report.hpp"
#include "support/mutations.hpp"
#include "support/nasty_values.hpp"

namespace gradwire::doctor {
namespace {

// Reads the facts of another rank and reports them, as rank 0 does.
void examine(const std::string& text) {
  Cluster cluster(2, 2);
  cluster.facts[2] = facts_from_json(text);
  cluster.facts[2].rank = 2;
  name_hosts(cluster.facts);
  const Findings findings = cluster.examine();
  for (const char c : report_text(cluster.facts, cluster.pairs, findings)) {
    const bool control = static_cast<unsigned char>(c) < ' ' || c == '\x7f';
    ASSERT_TRUE(!control || c == '\n') << "a terminal would obey it";
  }
  ASSERT_TRUE(nlohmann::json::accept(report_json(cluster.facts, cluster.pairs, findings)));
  static_cast<void>(choose_ranks(cluster.facts));
}

// Returns whether `text` is read; read_all() takes any exception for a refusal.
bool reads(const std::string& text) {
  try {
    examine(text);
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

TEST(DoctorFuzz, FactsAsTexts) {
  test::parse_mutations({to_json(healthy_rank(2, 1, 0))},
                        test::json_pieces({"\"mask\":[],", "\"cores\":[-1],", "\\u001b[2J", "\"host\":\"\\u0000\","}),
                        test::seed_of("FactsAsTexts", 191), 3000, [](const std::string& text) { reads(text); });
}

TEST(DoctorFuzz, FactsWithOtherValues) {
  std::mt19937 random(test::seed_of("FactsWithOtherValues", 192));
  const nlohmann::json whole = nlohmann::json::parse(to_json(healthy_rank(2, 1, 0)));
  int read = 0;
  for (int round = 0; round < 4000; ++round) {
    nlohmann::json root = whole;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      test::damage(root, random);
    }
    read += reads(root.dump()) ? 1 : 0;
    ASSERT_FALSE(HasFatalFailure()) << root.dump();
  }
  EXPECT_GT(read, 400);
}

TEST(DoctorFuzz, TextsOfTheKernel) {
  const std::vector<std::string> pieces{"-",  ",",    ":",  "\n", "[", "]",  " ",          "99999999999999999999", "-1",
                                        "kB", "\xff", "\t", "0",  "/", "..", "max 100000", std::string(1, '\0')};
  const unsigned seed = test::seed_of("TextsOfTheKernel", 193);
  test::parse_mutations({"0-3,8", "0-65535"}, pieces, seed, 3000, [](const std::string& text) {
    ASSERT_LE(parse_cpu_list(format_cpu_list(parse_cpu_list(text))).size(), std::size_t{1} << 20);
  });
  test::parse_mutations({"always [madvise] never\n"}, pieces, seed, 1000,
                        [](const std::string& text) { ASSERT_LE(parse_choice(text).size(), text.size()); });
  test::parse_mutations({"MemTotal: 2048 kB\nMemAvailable: 1024 kB\n"}, pieces, seed, 2000,
                        [](const std::string& text) {
                          static_cast<void>(parse_memory(text, "MemAvailable"));
                          ASSERT_LE(parse_field(text, "MemTotal").size(), text.size());
                        });
  test::parse_mutations({"150000 100000\n", "max 100000\n"}, pieces, seed, 1000,
                        [](const std::string& text) { ASSERT_GE(parse_cpu_max(text), 0); });
  test::parse_mutations({"4096 16384 4194304\n"}, pieces, seed, 1000,
                        [](const std::string& text) { static_cast<void>(parse_largest_buffer(text)); });
}

}  // namespace
}  // namespace gradwire::doctor

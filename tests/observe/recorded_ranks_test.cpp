// Tests which rank is named, with counts recorded from the ranks of real jobs.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/median.hpp"
#include "observe/slow_ranks.hpp"

namespace gradwire::observe::test {
namespace {

struct Recorded {
  std::string expected;  // such as "nobody" or "3 cores_shared"
  int line = 0;
  std::vector<RankSeen> ranks;
};

// Returns the number after `word`, in milliseconds.
double number_after(const std::string& text, const std::string& word, std::size_t from = 0) {
  const std::size_t at = text.find(word, from);
  EXPECT_NE(at, std::string::npos) << word << " in " << text;
  return at == std::string::npos ? 0 : std::stod(text.substr(at + word.size())) * 1e-3;
}

RankSeen parse(const std::string& text, std::size_t self) {
  RankSeen seen{.steps = 20, .bytes_in = 1};
  seen.step_seconds = number_after(text, "step ");
  seen.compute_seconds = number_after(text, "computes ");
  seen.wait_seconds = number_after(text, "in finish() ");
  seen.idle_seconds = number_after(text, "idle ");
  seen.codec_seconds_per_byte = number_after(text, "codec ");
  seen.delayed_seconds = number_after(text, "without a core ");
  seen.cpu_seconds = number_after(text, "on one ");
  seen.longest_gap = number_after(text, "longest gap ");
  std::vector<double> streams;
  std::vector<double> results;
  const std::string peer = "rank ";
  for (std::size_t at = text.find(peer); at != std::string::npos; at = text.find(peer, at + 1)) {
    PeerWait& wait = seen.peers.at(streams.size());
    wait.rank = std::stoi(text.substr(at + peer.size()));
    EXPECT_NE(wait.rank, static_cast<int>(self));
    wait.entry = number_after(text, "entry ", at);
    wait.direct = number_after(text, "frames ", at);
    wait.indirect = number_after(text, "results ", at);
    streams.push_back(wait.direct - wait.entry);
    results.push_back(wait.indirect);
  }
  seen.typical_stream = lower_median(streams);
  seen.typical_indirect = lower_median(results);
  return seen;
}

std::vector<Recorded> recorded() {
  std::ifstream file(std::string(GRADWIRE_SOURCE_DIR) + "/tests/observe/recorded_ranks.txt");
  std::vector<Recorded> all;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.starts_with("  ")) {
      all.back().ranks.push_back(parse(line, all.back().ranks.size()));
    } else if (!line.starts_with("#")) {
      all.push_back({.expected = line.substr(0, line.find(':')), .line = number, .ranks = {}});
    }
  }
  return all;
}

TEST(RecordedRanks, AreJudgedRightly) {
  const std::vector<Recorded> all = recorded();
  ASSERT_GE(all.size(), 10U);
  for (const Recorded& one : all) {
    const std::vector<Diagnosis> found = diagnose(one.ranks);
    std::string named;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i].cause != SlowCause::none) {
        named += (named.empty() ? "" : ", ") + std::to_string(i) + " " + std::string(to_string(found[i].cause));
      }
    }
    EXPECT_EQ(named.empty() ? "nobody" : named, one.expected) << "recorded_ranks.txt:" << one.line;
  }
}

}  // namespace
}  // namespace gradwire::observe::test

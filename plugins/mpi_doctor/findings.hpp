// From what all ranks see to what is said of it. Pure: no clock, no file, no MPI.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plugins/mpi_doctor/facts.hpp"

namespace gradwire::doctor {

enum class Level { problem, warning, note, ok };
[[nodiscard]] std::string_view to_string(Level level) noexcept;

struct Finding {
  Level level = Level::ok;
  std::string subject;     // "policy", "binding"
  std::string seen;        // "cannot be read: ..."
  std::string advice;      // what to do; empty: nothing
  std::vector<int> ranks;  // where; in their order. Empty: what is seen names the places itself
};

/// Links between some ranks, measured one pair after the other. Row: who sends. 0: not measured.
struct Pairs {
  std::vector<int> ranks;                      // in their order
  std::vector<std::vector<double>> rates;      // bytes per second
  std::vector<std::vector<double>> latencies;  // seconds, one way
  double seconds = 0;                          // what measuring took
};

/// The worst first; what is the same on several ranks once. `facts` by rank.
[[nodiscard]] std::vector<Finding> find(const std::vector<Facts>& facts, const Pairs& pairs);

/// "all ranks", "rank 3 (b)", "ranks 0-3 (a), 5 (b)".
[[nodiscard]] std::string where(const std::vector<int>& ranks, const std::vector<Facts>& facts);

/// "1 rank", "2 ranks".
[[nodiscard]] std::string counted(std::size_t count, const std::string& what);

// The parts of find().
using Findings = std::vector<Finding>;
void find_in_build(const std::vector<Facts>& facts, Findings& findings);
void find_in_settings(const std::vector<Facts>& facts, Findings& findings);
void find_in_cores(const std::vector<Facts>& facts, Findings& findings);
void find_in_hosts(const std::vector<Facts>& facts, const Pairs& pairs, Findings& findings);
void find_in_links(const std::vector<Facts>& facts, const Pairs& pairs, Findings& findings);

/// Hosts that share a name but no memory get one of their own: "node", "node#2".
void name_hosts(std::vector<Facts>& facts);

/// Hosts in the order of their first ranks, with their ranks.
struct Host {
  std::string name;
  std::vector<int> ranks;
};
[[nodiscard]] std::vector<Host> hosts_of(const std::vector<Facts>& facts);

inline constexpr std::size_t kMostRanks = 64;  // whose pairs are measured
/// Which ranks, in their order: all; or beyond kMostRanks as many, of as many hosts as there are, spread over each.
[[nodiscard]] std::vector<int> choose_ranks(const std::vector<Facts>& facts);
/// How many cores some rank of the host may use: a container or a queue may have fewer than the machine, by their
/// numbers or by a limit of CPU time that holds for all of them.
[[nodiscard]] std::size_t usable_cores(const std::vector<Facts>& facts, const Host& host);

}  // namespace gradwire::doctor

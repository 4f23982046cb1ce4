// Turns the facts of all ranks into findings. The functions are pure: they use no clock, file or MPI.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plugins/mpi_doctor/facts.hpp"

namespace gradwire::doctor {

enum class Severity { problem, warning, note, ok };
[[nodiscard]] std::string_view to_string(Severity level) noexcept;

struct Finding {
  Severity level = Severity::ok;
  std::string subject;     // "policy", "binding"
  std::string seen;        // "cannot be read: ..."
  std::string advice;      // what to do; empty: nothing
  std::vector<int> ranks;  // the ranks concerned, in order. Empty: `seen` names the places itself
};

/// Links between some ranks, measured one pair after the other. Rows are senders. 0: not measured.
struct Pairs {
  std::vector<int> ranks;                      // in their order
  std::vector<std::vector<double>> rates;      // bytes per second
  std::vector<std::vector<double>> latencies;  // seconds, one way
  double seconds = 0;                          // duration of the measurement
};

/// The findings, the worst first; equal ones of several ranks are one. `facts` are by rank.
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

/// Gives hosts that share a name but no memory names of their own: "node", "node#2".
void name_hosts(std::vector<Facts>& facts);

/// Hosts in the order of their first ranks, with their ranks.
struct Host {
  std::string name;
  std::vector<int> ranks;
};
[[nodiscard]] std::vector<Host> hosts_of(const std::vector<Facts>& facts);

inline constexpr std::size_t kMostRanks = 64;  // most ranks whose pairs are measured
/// The ranks to measure, in order: all, or kMostRanks of them, spread over all hosts and over each host.
[[nodiscard]] std::vector<int> choose_ranks(const std::vector<Facts>& facts);
/// Number of cores that the ranks of the host may use. A container or a queue may have fewer than the machine, by its
/// set of cores, or by a limit of the CPU time of all.
[[nodiscard]] std::size_t usable_cores(const std::vector<Facts>& facts, const Host& host);

}  // namespace gradwire::doctor

// Findings about each host: memory, pages, interfaces, buffers, clock.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "base/units.hpp"
#include "plugins/mpi_doctor/findings.hpp"

namespace gradwire::doctor {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kShmOfRank =
    32 * kMiB;  // bytes that MPI libraries keep there for a rank, and room for segments
constexpr std::uint64_t kMemoryOfRank = 256 * kMiB;
constexpr double kLateClock = 0.1;  // seconds
constexpr int kUsualMtu = 1500;
constexpr int kFastLink = 10000;  // Mbit/s; on faster links packets of 1500 bytes cost a core

const Facts& first_of(const std::vector<Facts>& facts, const Host& host) {
  return facts[static_cast<std::size_t>(host.ranks.front())];
}

std::string milliseconds(double seconds) { return format_number(std::round(seconds * 1e4) / 10, 4) + " ms"; }

std::string in_microseconds(double seconds) { return format_number(std::ceil(seconds * 1e6), 3) + " us"; }

void find_in_memory(const Facts& host, const std::vector<int>& ranks, Findings& findings) {
  const std::uint64_t wanted = kMemoryOfRank * ranks.size();
  if (host.memory != 0 && host.memory_available < std::max(wanted, host.memory / 20)) {
    findings.push_back({Severity::warning, "memory",
                        format_bytes(host.memory_available / kMiB * kMiB) + " of " +
                            format_bytes(host.memory / kMiB * kMiB) + " are free",
                        "see what else runs there (ps aux --sort=-rss); a rank needs its residuals beside its model",
                        ranks});
  } else if (host.memory != 0) {
    findings.push_back({Severity::ok, "memory", "enough is free", "", ranks});
  }
  const bool shared = ranks.size() > 1;
  if (shared && host.shm != 0 && host.shm_free < kShmOfRank * ranks.size()) {
    findings.push_back({Severity::warning, "/dev/shm",
                        format_bytes(host.shm_free / kMiB * kMiB) + " are free, for " + std::to_string(ranks.size()) +
                            " ranks that send to each other through it",
                        "clear it of what dead jobs left; start containers with --shm-size=1g; else mount -o "
                        "remount,size=1g /dev/shm",
                        ranks});
  } else if (host.shm != 0) {
    findings.push_back({Severity::ok, "/dev/shm", "enough is free", "", ranks});
  }
  if (host.huge_pages == "never") {
    findings.push_back({Severity::note, "huge pages", "transparent huge pages are off (never)",
                        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled lets large buffers have them",
                        ranks});
  } else if (!host.huge_pages.empty()) {
    findings.push_back({Severity::ok, "huge pages", host.huge_pages, "", ranks});
  }
}

/// The hosts whose clocks are right.
struct RightClocks {
  double furthest = 0;
  double error = 0;
  std::vector<int> ranks;
};

void find_in_clock(const Facts& host, const std::vector<int>& ranks, RightClocks& right, Findings& findings) {
  if (std::abs(host.clock_offset) - host.clock_error > kLateClock) {
    findings.push_back({Severity::warning, "clock",
                        milliseconds(std::abs(host.clock_offset)) + (host.clock_offset > 0 ? " ahead of" : " behind") +
                            " rank 0's, to " + milliseconds(host.clock_error),
                        "synchronise it (chronyc tracking, timedatectl): times in logs and traces of ranks do not fit "
                        "together",
                        ranks});
  } else {
    right.furthest = std::max(right.furthest, std::abs(host.clock_offset));
    right.error = std::max(right.error, host.clock_error);
    right.ranks.insert(right.ranks.end(), ranks.begin(), ranks.end());
  }
}

void find_in_mtu(const std::vector<Facts>& facts, const std::vector<Host>& hosts, Findings& findings) {
  const std::size_t before = findings.size();
  std::map<std::string, std::map<int, std::vector<int>>> by_name;  // interface, MTU, ranks
  for (const Host& host : hosts) {
    for (const Interface& one : first_of(facts, host).interfaces) {
      std::vector<int>& ranks = by_name[one.name][one.mtu];
      ranks.insert(ranks.end(), host.ranks.begin(), host.ranks.end());
      if (one.megabits > kFastLink && one.mtu <= kUsualMtu) {
        findings.push_back(
            {Severity::note, "MTU",
             one.name + " has an MTU of " + std::to_string(one.mtu) + " at " + format_rate(one.megabits * 1e6 / 8),
             "if switches and all hosts allow it: ip link set " + one.name + " mtu 9000", host.ranks});
      }
    }
  }
  for (const auto& [name, mtus] : by_name) {
    if (mtus.size() > 1) {
      std::string seen = name + " has an MTU of ";
      for (const auto& [mtu, ranks] : mtus) {
        seen += (mtu == mtus.begin()->first ? "" : ", of ") + std::to_string(mtu) + " on " + where(ranks, facts);
      }
      findings.push_back({Severity::warning,
                          "MTU",
                          seen,
                          "set the same on all hosts and switches: larger packets are dropped or cut on the way",
                          {}});
    }
  }
  if (findings.size() == before && !by_name.empty()) {
    std::string seen;
    for (const auto& [name, mtus] : by_name) {
      seen += (seen.empty() ? "" : ", ") + name + " " + std::to_string(mtus.begin()->first);
    }
    findings.push_back({Severity::ok, "MTU", seen, "", {}});
  }
}

// Finds connections whose buffers hold less than twice the bytes in flight; twice, since the kernel counts its own
// overhead too.
void find_in_buffers(const std::vector<Facts>& facts, const Pairs& pairs, Findings& findings) {
  double under_way = 0;
  double rate = 0;
  double delay = 0;
  std::vector<int> ranks;
  for (std::size_t i = 0; i < pairs.ranks.size(); ++i) {
    for (std::size_t j = 0; j < pairs.ranks.size(); ++j) {
      const Facts& from = facts[static_cast<std::size_t>(pairs.ranks[i])];
      const Facts& to = facts[static_cast<std::size_t>(pairs.ranks[j])];
      const std::uint64_t buffer = std::min(from.tcp_send, to.tcp_receive);
      const double bytes = 2 * pairs.latencies[i][j] * pairs.rates[i][j];
      if (from.host != to.host && buffer != 0 && 2 * bytes > static_cast<double>(buffer)) {
        ranks.insert(ranks.end(), {from.rank, to.rank});
        if (bytes > under_way) {
          under_way = bytes;
          rate = pairs.rates[i][j];
          delay = 2 * pairs.latencies[i][j];
        }
      }
    }
  }
  if (!ranks.empty()) {
    const std::uint64_t wanted = (static_cast<std::uint64_t>(4 * under_way) / kMiB + 1) * kMiB;
    const std::string number = std::to_string(wanted);
    findings.push_back(
        {Severity::warning, "TCP buffers",
         "a connection's buffers are too small for " + format_rate(rate) + " with " + milliseconds(delay) +
             " there and back",
         "sysctl -w net.ipv4.tcp_rmem='4096 131072 " + number + "' net.ipv4.tcp_wmem='4096 16384 " + number + "'",
         ranks});
  }
}

}  // namespace

void find_in_hosts(const std::vector<Facts>& facts, const Pairs& pairs, Findings& findings) {
  const std::vector<Host> hosts = hosts_of(facts);
  RightClocks right;
  for (const Host& host : hosts) {
    find_in_memory(first_of(facts, host), host.ranks, findings);
    if (facts.size() > 1) {
      find_in_clock(first_of(facts, host), host.ranks, right, findings);
    }
  }
  if (!right.ranks.empty()) {
    findings.push_back(
        {Severity::ok, "clock",
         milliseconds(right.furthest) + " off rank 0's at most, measured to " + in_microseconds(right.error), "",
         right.ranks});
  }
  find_in_mtu(facts, hosts, findings);
  find_in_buffers(facts, pairs, findings);
}

}  // namespace gradwire::doctor

// Makes a healthy cluster as doctor sees it, for tests to damage.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "plugins/mpi_doctor/findings.hpp"

namespace gradwire::doctor {

inline constexpr double kGigabit = 125e6;  // bytes per second
inline constexpr double kInside = 5e9;

inline Facts healthy_rank(int rank, int host, int place) {
  Facts facts;
  facts.rank = rank;
  facts.host = "host" + std::to_string(host);
  facts.node = rank - place;
  facts.version = "0.2.0";
  facts.build = "Release";
  facts.mpi = "Open MPI v4.1.4";
  facts.threads = "MPI_THREAD_MULTIPLE";
  facts.preloads = {{"Open MPI", "/opt/gw/lib/libgradwire_mpi.so", "0123456789abcdef"}, {"MPICH", "", ""}};
  facts.policy = {"/p/policy.toml", "fedcba9876543210", ""};
  facts.variables = {{"GRADWIRE_POLICY", "/p/policy.toml"}};
  facts.cores = {0, 1, 2, 3, 4, 5, 6, 7};
  facts.mask = {2 * place, 2 * place + 1};
  facts.numa_nodes = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  facts.huge_pages = "madvise";
  facts.memory = std::uint64_t{64} << 30;
  facts.memory_available = std::uint64_t{60} << 30;
  facts.shm = facts.shm_free = std::uint64_t{32} << 30;
  facts.tcp_send = 4 << 20;
  facts.tcp_receive = 6 << 20;
  facts.interfaces = {{.name = "eth0", .mtu = 9000, .megabits = 1000, .physical = true}};
  facts.clock_offset = rank == 0 ? 0 : 2e-3;
  facts.clock_error = rank == 0 ? 0 : 40e-6;
  return facts;
}

struct Cluster {
  std::vector<Facts> facts;
  Pairs pairs;

  Cluster(int hosts, int ranks_per_host) {
    for (int rank = 0; rank < hosts * ranks_per_host; ++rank) {
      facts.push_back(healthy_rank(rank, rank / ranks_per_host, rank % ranks_per_host));
      pairs.ranks.push_back(rank);
    }
    pairs.rates.assign(facts.size(), std::vector<double>(facts.size()));
    pairs.latencies = pairs.rates;
    for (std::size_t i = 0; i < facts.size(); ++i) {
      for (std::size_t j = 0; j < facts.size(); ++j) {
        const bool inside = facts[i].host == facts[j].host;
        pairs.rates[i][j] = i == j ? 0 : inside ? kInside : kGigabit * (1 - 0.01 * static_cast<double>((i + j) % 7));
        pairs.latencies[i][j] = i == j ? 0 : inside ? 1e-6 : 30e-6;
      }
    }
  }

  void slow_host(int host, double factor, bool out, bool in) {
    for (std::size_t i = 0; i < facts.size(); ++i) {
      for (std::size_t j = 0; j < facts.size(); ++j) {
        const std::string name = "host" + std::to_string(host);
        if (facts[i].host != facts[j].host && ((out && facts[i].host == name) || (in && facts[j].host == name))) {
          pairs.rates[i][j] *= factor;
        }
      }
    }
  }
  [[nodiscard]] Findings examine() const { return find(facts, pairs); }
};

/// Returns problems, warnings and notes.
inline Findings complaints(const Findings& all) {
  Findings some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [](const Finding& one) { return one.level != Severity::ok; });
  return some;
}

}  // namespace gradwire::doctor

// Findings about cores: how many ranks of a host share them, and how ranks are bound.
#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/units.hpp"
#include "plugins/mpi_doctor/findings.hpp"

namespace gradwire::doctor {
namespace {

const Facts& of(const std::vector<Facts>& facts, int rank) { return facts[static_cast<std::size_t>(rank)]; }

bool is_open_mpi(const Facts& rank) { return rank.mpi.find("Open MPI") != std::string::npos; }

// Finds ranks that share few cores although the host has enough for all.
bool find_crowded(const std::vector<Facts>& facts, const Host& host, Findings& findings) {
  std::map<std::vector<int>, std::vector<int>> by_mask;
  for (const int rank : host.ranks) {
    by_mask[of(facts, rank).mask].push_back(rank);
  }
  bool found = false;
  for (const auto& [mask, ranks] : by_mask) {
    if (mask.size() < ranks.size() && !mask.empty()) {
      found = true;
      const bool open_mpi = is_open_mpi(of(facts, ranks.front()));
      findings.push_back(
          {Severity::problem, "binding",
           counted(ranks.size(), "rank") + " are bound to core" + (mask.size() == 1 ? " " : "s ") +
               format_cpu_list(mask) + ", of " + counted(of(facts, ranks.front()).cores.size(), "core") +
               " that the host has",
           open_mpi ? "mpirun --bind-to core --map-by core gives each rank a core of its own, --bind-to none leaves it "
                      "to the kernel; where a queue or a container gave so few cores, ask it for more"
                    : "mpiexec -bind-to core gives each rank a core of its own, -bind-to none leaves it to the kernel; "
                      "where a queue or a container gave so few cores, ask it for more",
           ranks});
    }
  }
  return found;
}

std::size_t nodes_of(const Facts& rank) {
  return static_cast<std::size_t>(
      std::count_if(rank.numa_nodes.begin(), rank.numa_nodes.end(), [&](const std::vector<int>& node) {
        return std::any_of(node.begin(), node.end(), [&](int core) {
          return std::find(rank.mask.begin(), rank.mask.end(), core) != rank.mask.end();
        });
      }));
}

void find_bound(const std::vector<Facts>& facts, const Host& host, Findings& findings) {
  const std::size_t all = usable_cores(facts, host);
  for (const int number : host.ranks) {
    const Facts& rank = of(facts, number);
    const std::size_t nodes = nodes_of(rank);
    const bool bound = rank.mask.size() < rank.cores.size();
    if (nodes > 1 && host.ranks.size() > 1) {
      findings.push_back({Severity::note,
                          "NUMA",
                          std::string(bound ? "bound to cores of " : "not bound, on ") + counted(nodes, "NUMA node") +
                              ": a rank may run far from its memory",
                          is_open_mpi(rank) ? "mpirun --map-by numa --bind-to numa" : "mpiexec -bind-to numa",
                          {number}});
    } else if (rank.mask.size() == 1 && all >= 2 * host.ranks.size()) {
      findings.push_back(
          {Severity::note,
           "binding",
           "bound to one core, which its threads share, while the host's " + counted(all, "bound core") +
               " leave room for more",
           is_open_mpi(rank) ? "mpirun --map-by slot:PE=2 --bind-to core, or --bind-to none" : "mpiexec -bind-to none",
           {number}});
    } else {
      findings.push_back({Severity::ok,
                          "binding",
                          bound ? "bound, each to " + counted(rank.mask.size(), "core")
                                : "not bound, " + counted(rank.cores.size(), "core"),
                          "",
                          {number}});
    }
  }
}

// Finds control groups with less CPU time than one core for each rank: the kernel stops all their ranks for a part of
// each period.
void find_throttled(const std::vector<Facts>& facts, const Host& host, Findings& findings) {
  std::map<std::string, std::vector<int>> groups;
  for (const int rank : host.ranks) {
    if (of(facts, rank).cpu.cores > 0) {
      groups[of(facts, rank).cpu.group].push_back(rank);
    }
  }
  for (const auto& [group, ranks] : groups) {
    double limit = 0;
    for (const int rank : ranks) {
      limit = std::max(limit, of(facts, rank).cpu.cores);
    }
    if (limit < static_cast<double>(ranks.size())) {
      findings.push_back({Severity::warning, "CPU limit",
                          counted(ranks.size(), "rank") + (ranks.size() == 1 ? " has" : " share") +
                              " the CPU time of " + format_number(limit, 3) + (limit == 1 ? " core" : " cores") +
                              " (limit of the control group " + group +
                              "): the kernel stops them for the rest of each period, and all others wait",
                          "ask the container or the queue for a core a rank (docker --cpus, Kubernetes' limits.cpu, "
                          "systemd's CPUQuota), or start fewer ranks",
                          ranks});
    }
  }
}

void find_threads(const std::vector<Facts>& facts, const Host& host, std::size_t cores, Findings& findings) {
  std::size_t threads = 0;
  for (const int rank : host.ranks) {
    const auto found = of(facts, rank).variables.find("OMP_NUM_THREADS");
    std::size_t own = 1;
    if (found != of(facts, rank).variables.end()) {
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), own);
    }
    threads += own;
  }
  if (threads > cores && threads > host.ranks.size()) {
    findings.push_back({Severity::warning, "OMP_NUM_THREADS",
                        std::to_string(threads) + " threads by OMP_NUM_THREADS on " + counted(cores, "core"),
                        "set it to " + std::to_string(std::max<std::size_t>(1, cores / host.ranks.size())) +
                            ", or start fewer ranks on a host",
                        host.ranks});
  }
}

}  // namespace

void find_in_cores(const std::vector<Facts>& facts, Findings& findings) {
  for (const Host& host : hosts_of(facts)) {
    find_throttled(facts, host, findings);
    const std::size_t cores = usable_cores(facts, host);
    const std::size_t all = of(facts, host.ranks.front()).cores.size();
    if (cores == 0 || all == 0) {
      findings.push_back({Severity::note, "cores", "how many cores there are cannot be read", "", host.ranks});
      continue;
    }
    if (host.ranks.size() > all) {
      findings.push_back({Severity::warning, "cores",
                          counted(host.ranks.size(), "rank") + " share " + counted(all, "core") +
                              ": they wait for each other's time slices",
                          "start fewer ranks on each host; where it must be so, Open MPI's mpirun takes --mca "
                          "mpi_yield_when_idle 1",
                          host.ranks});
    } else if (!find_crowded(facts, host, findings)) {
      find_bound(facts, host, findings);
    }
    find_threads(facts, host, cores, findings);
  }
}

}  // namespace gradwire::doctor

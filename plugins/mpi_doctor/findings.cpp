#include "plugins/mpi_doctor/findings.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace gradwire::doctor {

std::string_view to_string(Severity level) noexcept {
  switch (level) {
    case Severity::problem: return "problem";
    case Severity::warning: return "warning";
    case Severity::note: return "note";
    case Severity::ok: return "ok";
  }
  return "unknown";
}

std::string counted(std::size_t count, const std::string& what) {
  return std::to_string(count) + ' ' + what + (count == 1 ? "" : "s");
}

std::vector<Host> hosts_of(const std::vector<Facts>& facts) {
  std::vector<Host> hosts;
  for (const Facts& rank : facts) {
    auto host = std::find_if(hosts.begin(), hosts.end(), [&](const Host& each) { return each.name == rank.host; });
    if (host == hosts.end()) {
      host = hosts.insert(hosts.end(), Host{rank.host, {}});
    }
    host->ranks.push_back(rank.rank);
  }
  return hosts;
}

std::vector<int> choose_ranks(const std::vector<Facts>& facts) {
  const std::vector<Host> hosts = hosts_of(facts);
  std::vector<std::size_t> shares(hosts.size());  // number of ranks of each host
  const std::size_t wanted = std::min(facts.size(), kMostRanks);
  if (hosts.size() >= wanted) {
    for (std::size_t i = 0; i < wanted; ++i) {
      shares[i * hosts.size() / wanted] = 1;
    }
  } else {
    for (std::size_t taken = 0; taken < wanted;) {
      for (std::size_t i = 0; i < hosts.size() && taken < wanted; ++i) {
        const bool has_more = shares[i] < hosts[i].ranks.size();
        shares[i] += has_more ? 1 : 0;
        taken += has_more ? 1 : 0;
      }
    }
  }
  std::vector<int> ranks;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    for (std::size_t k = 0; k < shares[i]; ++k) {
      ranks.push_back(hosts[i].ranks[k * hosts[i].ranks.size() / shares[i]]);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::size_t usable_cores(const std::vector<Facts>& facts, const Host& host) {
  std::set<int> cores;
  for (const int rank : host.ranks) {
    const std::vector<int>& mask = facts[static_cast<std::size_t>(rank)].mask;
    cores.insert(mask.begin(), mask.end());
  }
  auto limit = static_cast<double>(cores.size());
  for (const int rank : host.ranks) {
    const CpuLimit& cpu = facts[static_cast<std::size_t>(rank)].cpu;
    const bool all = cpu.cores > 0 && std::all_of(host.ranks.begin(), host.ranks.end(), [&](int other) {
                       return facts[static_cast<std::size_t>(other)].cpu.group == cpu.group;
                     });
    limit = all ? std::min(limit, std::max(1.0, std::floor(cpu.cores))) : limit;
  }
  return static_cast<std::size_t>(limit);
}

void name_hosts(std::vector<Facts>& facts) {
  std::map<std::string, std::vector<int>> nodes;  // of each name
  for (Facts& rank : facts) {
    std::vector<int>& alike = nodes[rank.host];
    const auto found = std::find(alike.begin(), alike.end(), rank.node);
    const auto index = found - alike.begin();
    if (found == alike.end()) {
      alike.push_back(rank.node);
    }
    rank.host += index == 0 ? "" : "#" + std::to_string(index + 1);
  }
}

std::string where(const std::vector<int>& ranks, const std::vector<Facts>& facts) {
  if (ranks.size() == facts.size()) {
    return ranks.size() == 1 ? "here" : "all ranks";
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  bool first = true;
  for (const Host& host : hosts_of(facts)) {
    std::vector<int> here;
    std::copy_if(host.ranks.begin(), host.ranks.end(), std::back_inserter(here),
                 [&](int rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); });
    if (!here.empty()) {
      text += (first ? "" : ", ") + format_cpu_list(here) + " (" + host.name + ")";
      first = false;
    }
  }
  return text;
}

std::vector<Finding> find(const std::vector<Facts>& facts, const Pairs& pairs) {
  Findings all;
  find_in_build(facts, all);
  find_in_settings(facts, all);
  find_in_cores(facts, all);
  find_in_hosts(facts, pairs, all);
  find_in_links(facts, pairs, all);
  Findings merged;
  for (const Finding& one : all) {
    const auto same = std::find_if(merged.begin(), merged.end(), [&](const Finding& other) {
      return other.level == one.level && other.subject == one.subject && other.seen == one.seen &&
             other.advice == one.advice;
    });
    if (same == merged.end()) {
      merged.push_back(one);
    } else {
      same->ranks.insert(same->ranks.end(), one.ranks.begin(), one.ranks.end());
    }
  }
  for (Finding& one : merged) {
    std::sort(one.ranks.begin(), one.ranks.end());
    one.ranks.erase(std::unique(one.ranks.begin(), one.ranks.end()), one.ranks.end());
  }
  std::stable_sort(merged.begin(), merged.end(), [](const Finding& a, const Finding& b) { return a.level < b.level; });
  return merged;
}

}  // namespace gradwire::doctor

// Findings about links: pairs, hosts or ranks whose rate is less than half of the usual one.
#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "base/median.hpp"
#include "base/units.hpp"
#include "plugins/mpi_doctor/findings.hpp"

namespace gradwire::doctor {
namespace {

constexpr double kHalf = 0.5;
constexpr double kQuarter = 0.25;      // below it the job is mostly waiting
constexpr double kFarLatency = 3;      // factor above the median
constexpr double kFarSeconds = 50e-6;  // seconds above the median, in addition
constexpr std::size_t kMostNamed = 8;

/// Rates between ends, which are hosts or ranks of one host. 0: not measured.
struct Rates {
  std::vector<std::string> names;
  std::vector<std::vector<int>> ranks;
  std::vector<std::vector<double>> rates;
};

/// The usual rate of the links: the median of the best link of each end. So one slow end of three, which is part of
/// most links, has only one vote.
double usual_of(const Rates& links) {
  std::vector<double> best;
  for (std::size_t end = 0; end < links.names.size(); ++end) {
    double most = 0;
    for (std::size_t other = 0; other < links.names.size(); ++other) {
      most = std::max({most, links.rates[end][other], links.rates[other][end]});
    }
    if (most > 0) {
      best.push_back(most);
    }
  }
  return median(best);
}

std::string rounded(double bytes_per_second) {
  return format_rate(std::stod(format_number(bytes_per_second * 8, 3)) / 8);
}

/// The texts for a rate that is below half of `usual`.
struct Kind {
  std::string subject;
  std::string advice;
  bool network = false;  // a network; otherwise the memory of a host, which other programs use too
  bool crowded = false;  // more ranks than cores, so times say little
};

Severity level_of(const Kind& kind, double share) {
  return kind.crowded ? Severity::note : kind.network && share < kQuarter ? Severity::problem : Severity::warning;
}

/// The best rate of one end to or from all others; no value if it has fewer than two rates.
std::optional<double> best_of(const Rates& links, std::size_t end, bool out) {
  std::vector<double> rates;
  for (std::size_t other = 0; other < links.names.size(); ++other) {
    const double rate = out ? links.rates[end][other] : links.rates[other][end];
    if (rate > 0) {
      rates.push_back(rate);
    }
  }
  return rates.size() < 2 ? std::nullopt : std::optional(*std::max_element(rates.begin(), rates.end()));
}

/// Finds ends all of whose links are slow. These are reported instead of their pairs.
void find_slow_ends(const Rates& links, double usual, const Kind& kind, std::set<std::size_t>& slow_out,
                    std::set<std::size_t>& slow_in, Findings& findings) {
  for (std::size_t end = 0; end < links.names.size(); ++end) {
    const auto out = best_of(links, end, true);
    const auto in = best_of(links, end, false);
    const bool out_slow = out && *out < kHalf * usual;
    const bool in_slow = in && *in < kHalf * usual;
    if (!out_slow && !in_slow) {
      continue;
    }
    if (out_slow) {
      slow_out.insert(end);
    }
    if (in_slow) {
      slow_in.insert(end);
    }
    std::string seen = links.names[end] + (out_slow ? " sends at " + rounded(*out) + " at best" : "");
    seen += in_slow ? std::string(out_slow ? " and" : "") + " receives at " + rounded(*in) + " at best" : "";
    const double worst = std::min(out_slow ? *out : *in, in_slow ? *in : *out);
    findings.push_back({level_of(kind, worst / usual), kind.subject, seen + ", where others give " + rounded(usual),
                        kind.advice, links.ranks[end]});
  }
}

struct SlowPair {
  double share;
  double rate;
  double usual;
  std::size_t from;
  std::size_t to;
  bool reverse;  // `usual` is that of the other direction
};

void tell_pairs(const Rates& links, std::vector<SlowPair> pairs, const Kind& kind, Findings& findings) {
  std::sort(pairs.begin(), pairs.end(), [](const SlowPair& a, const SlowPair& b) { return a.share < b.share; });
  if (pairs.size() <= kMostNamed) {
    for (const SlowPair& pair : pairs) {
      findings.push_back({level_of(kind, pair.share),
                          kind.subject,
                          links.names[pair.from] + " to " + links.names[pair.to] + " gives " + rounded(pair.rate) +
                              (pair.reverse ? ", and back " : ", where others give ") + rounded(pair.usual),
                          kind.advice,
                          {}});
    }
    return;
  }
  std::string seen = std::to_string(pairs.size()) + " links give less than half of the usual " +
                     rounded(pairs.front().usual) + "; the slowest:";
  for (std::size_t i = 0; i < kMostNamed; ++i) {
    seen += (i == 0 ? " " : ", ") + links.names[pairs[i].from] + " to " + links.names[pairs[i].to] + " " +
            rounded(pairs[i].rate);
  }
  findings.push_back({level_of(kind, pairs.front().share), kind.subject, seen, kind.advice, {}});
}

/// `usual` is the usual rate of such links.
void find_outliers(const Rates& links, double usual, const Kind& kind, Findings& findings) {
  std::set<std::size_t> slow_out;
  std::set<std::size_t> slow_in;
  if (links.names.size() > 2) {
    find_slow_ends(links, usual, kind, slow_out, slow_in, findings);
  }
  std::vector<SlowPair> slow;
  for (std::size_t i = 0; i < links.names.size(); ++i) {
    for (std::size_t j = 0; j < links.names.size(); ++j) {
      const double rate = links.rates[i][j];
      if (rate <= 0 || slow_out.contains(i) || slow_in.contains(j)) {
        continue;
      }
      const double back = links.rates[j][i];
      if (links.names.size() > 2 && rate < kHalf * usual) {
        slow.push_back({rate / usual, rate, usual, i, j, false});
      } else if (rate < kHalf * back && !slow_out.contains(j) && !slow_in.contains(i)) {
        slow.push_back({rate / back, rate, back, i, j, true});
      }
    }
  }
  tell_pairs(links, slow, kind, findings);
}

Rates between_hosts(const std::vector<Facts>& facts, const Pairs& pairs, const std::vector<Host>& hosts,
                    std::vector<double>& latencies) {
  Rates links;
  std::map<std::string, std::size_t> index;
  for (const Host& host : hosts) {
    index.emplace(host.name, links.names.size());
    links.names.push_back(host.name);
    links.ranks.push_back(host.ranks);
  }
  links.rates.assign(hosts.size(), std::vector<double>(hosts.size()));
  for (std::size_t i = 0; i < pairs.ranks.size(); ++i) {
    for (std::size_t j = 0; j < pairs.ranks.size(); ++j) {
      const std::size_t from = index[facts[static_cast<std::size_t>(pairs.ranks[i])].host];
      const std::size_t to = index[facts[static_cast<std::size_t>(pairs.ranks[j])].host];
      if (from != to && pairs.rates[i][j] > 0) {
        links.rates[from][to] = std::max(links.rates[from][to], pairs.rates[i][j]);
        latencies.push_back(pairs.latencies[i][j]);
      }
    }
  }
  return links;
}

void find_far(const std::vector<Facts>& facts, const Pairs& pairs, double usual, Findings& findings) {
  for (std::size_t i = 0; i < pairs.ranks.size(); ++i) {
    for (std::size_t j = i + 1; j < pairs.ranks.size(); ++j) {
      const Facts& a = facts[static_cast<std::size_t>(pairs.ranks[i])];
      const Facts& b = facts[static_cast<std::size_t>(pairs.ranks[j])];
      const double latency = pairs.latencies[i][j];
      if (a.host != b.host && latency > kFarLatency * usual && latency > usual + kFarSeconds) {
        findings.push_back({Severity::note,
                            "latency",
                            a.host + " and " + b.host + " are far from each other: more than three times the median " +
                                format_number(usual * 1e6, 3) + " us",
                            "see how they are connected (traceroute); place the job's hosts together",
                            {a.rank, b.rank}});
      }
    }
  }
}

/// Finds ranks whose best link to another host is far below that of their neighbours.
void find_slow_neighbours(const std::vector<Facts>& facts, const Pairs& pairs, const Kind& kind, Findings& findings) {
  std::map<std::string, double> best;
  std::map<int, double> own;
  for (std::size_t i = 0; i < pairs.ranks.size(); ++i) {
    const Facts& from = facts[static_cast<std::size_t>(pairs.ranks[i])];
    for (std::size_t j = 0; j < pairs.ranks.size(); ++j) {
      if (from.host != facts[static_cast<std::size_t>(pairs.ranks[j])].host) {
        best[from.host] = std::max(best[from.host], pairs.rates[i][j]);
        own[from.rank] = std::max(own[from.rank], pairs.rates[i][j]);
      }
    }
  }
  for (const auto& [rank, rate] : own) {
    const double usual = best[facts[static_cast<std::size_t>(rank)].host];
    if (rate > 0 && rate < kHalf * usual) {
      findings.push_back(
          {kind.crowded ? Severity::note : Severity::warning,
           "link",
           "sends at " + rounded(rate) + " at best, where another rank of its host gives " + rounded(usual),
           "see whether its core is shared (top) and far from the network card (NUMA)",
           {rank}});
    }
  }
}

/// `rate` is that of the fastest link of all, so that a slow host is not reported twice.
void find_slow_interface(const std::vector<Facts>& facts, const Host& host, double rate, Findings& findings) {
  for (const Interface& one : facts[static_cast<std::size_t>(host.ranks.front())].interfaces) {
    const double speed = one.megabits * 1e6 / 8;
    if (one.physical && rate > 0 && rate < kHalf * speed) {
      findings.push_back({Severity::note, "link",
                          "the fastest link gives " + rounded(rate) + ", and " + one.name + " is of " + rounded(speed),
                          "see which interface MPI takes: Open MPI's mpirun has --mca btl_tcp_if_include " + one.name,
                          host.ranks});
    }
  }
}

bool is_crowded(const std::vector<Facts>& facts, const Host& host) {
  return host.ranks.size() > usable_cores(facts, host);
}

void find_in_networks(const std::vector<Facts>& facts, const Pairs& pairs, const std::vector<Host>& hosts,
                      Findings& findings) {
  Kind kind{.subject = "link",
            .advice =
                "see its cable, port, switch and card (ethtool NAME: Speed; ip -s link: errors), and what else "
                "sends there",
            .network = true};
  kind.crowded = std::any_of(hosts.begin(), hosts.end(), [&](const Host& host) { return is_crowded(facts, host); });
  std::vector<double> latencies;
  const Rates links = between_hosts(facts, pairs, hosts, latencies);
  const double usual = usual_of(links);
  if (usual <= 0) {
    return;
  }
  const double usual_latency = median(latencies);
  const std::size_t before = findings.size();
  Kind network = kind;
  network.crowded = false;  // a slow network takes longer than the wait for a core
  find_outliers(links, usual, network, findings);
  find_slow_neighbours(facts, pairs, kind, findings);
  if (hosts.size() > 2) {
    find_far(facts, pairs, usual_latency, findings);
  }
  if (findings.size() == before) {
    findings.push_back({Severity::ok,
                        "link",
                        "between hosts " + rounded(usual) + ", " + format_number(usual_latency * 1e6, 3) + " us",
                        "",
                        {}});
  }
  double fastest = 0;
  for (const std::vector<double>& row : links.rates) {
    fastest = std::max(fastest, *std::max_element(row.begin(), row.end()));
  }
  for (const Host& host : hosts) {
    find_slow_interface(facts, host, fastest, findings);
  }
}

}  // namespace

void find_in_links(const std::vector<Facts>& facts, const Pairs& pairs, Findings& findings) {
  const std::vector<Host> hosts = hosts_of(facts);
  find_in_networks(facts, pairs, hosts, findings);
  std::vector<Rates> inside;
  std::vector<double> all;
  for (const Host& host : hosts) {
    Rates links;
    std::vector<std::size_t> at;
    for (std::size_t i = 0; i < pairs.ranks.size(); ++i) {
      if (facts[static_cast<std::size_t>(pairs.ranks[i])].host == host.name) {
        at.push_back(i);
        links.names.push_back("rank " + std::to_string(pairs.ranks[i]));
        links.ranks.push_back({pairs.ranks[i]});
      }
    }
    for (const std::size_t i : at) {
      std::vector<double> row;
      row.reserve(at.size());
      for (const std::size_t j : at) {
        row.push_back(pairs.rates[i][j]);
      }
      links.rates.push_back(row);
    }
    if (const double own = usual_of(links); own > 0) {
      all.push_back(own);
    }
    inside.push_back(links);
  }
  if (all.empty()) {
    return;
  }
  const double usual = median(all);
  const std::size_t before = findings.size();
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const Kind kind{.subject = "memory link",
                    .advice = "see how its ranks are bound, and what else runs there (top)",
                    .crowded = is_crowded(facts, hosts[i])};
    const double own = usual_of(inside[i]);
    if (own > 0 && own < kHalf * usual) {
      findings.push_back({level_of(kind, own / usual), kind.subject,
                          "ranks of " + hosts[i].name + " give each other " + rounded(own) +
                              ", where on other hosts it is " + rounded(usual),
                          kind.advice, hosts[i].ranks});
    } else {
      find_outliers(inside[i], own, kind, findings);
    }
  }
  if (findings.size() == before) {
    findings.push_back({Severity::ok, "memory link", "inside hosts " + rounded(usual), "", {}});
  }
}

}  // namespace gradwire::doctor

#include "plugins/mpi_doctor/report.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.hpp"
#include "base/units.hpp"

namespace gradwire::doctor {
namespace {

using nlohmann::json;

constexpr std::size_t kWidth = 100;       // width of a line of text
constexpr std::size_t kMostColumns = 12;  // most columns of a matrix of numbers; larger ones have a character a link

std::size_t count_of(const Findings& findings, Severity level) {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(), [&](const Finding& one) { return one.level == level; }));
}

/// Breaks the text at blanks; lines after the first begin with `indent` blanks.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string result;
  std::size_t column = indent;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (column > indent && column + 1 + word.size() > kWidth) {
      result += '\n' + std::string(indent, ' ') + word;
      column = indent + word.size();
    } else {
      result += (column > indent ? " " : "") + word;
      column += (column > indent ? 1 : 0) + word.size();
    }
    begin = end + 1;
  }
  return result;
}

// Formats a finding. Names of hosts, variables and files come from elsewhere, and a terminal might obey escapes in
// them.
std::string finding_text(const Finding& finding, const std::vector<Facts>& facts) {
  constexpr std::size_t kIndent = 9;  // "problem  "
  std::string level(to_string(finding.level));
  level.resize(kIndent, ' ');
  const std::string place =
      finding.ranks.empty() || (finding.level == Severity::ok && finding.ranks.size() == facts.size())
          ? ""
          : ", " + where(finding.ranks, facts);
  std::string text = level + wrapped(text::printable(finding.subject + place + ": " + finding.seen), kIndent) + '\n';
  if (!finding.advice.empty()) {
    text += std::string(kIndent, ' ') + wrapped(text::printable("-> " + finding.advice), kIndent + 3) + '\n';
  }
  return text;
}

const Facts& fact(const std::vector<Facts>& facts, int rank) { return facts[static_cast<std::size_t>(rank)]; }

std::string row_name(const std::vector<Facts>& facts, int rank) {
  return std::to_string(rank) + ' ' + text::printable(fact(facts, rank).host);
}

/// A rate in Mbit/s or a latency in us with three digits.
std::string cell(double value) {
  constexpr double kThreeDigits = 1000;
  if (value < kThreeDigits) {
    return value <= 0 ? "-" : format_number(value, 3);
  }
  const double unit = std::pow(10, std::floor(std::log10(value)) - 2);
  return std::to_string(static_cast<long long>(std::round(value / unit) * unit));  // never an exponent
}

std::string matrix(const std::vector<Facts>& facts, const Pairs& pairs, const std::string& head,
                   const std::vector<std::vector<double>>& values, double unit) {
  std::vector<std::vector<std::string>> rows{{"rank"}};
  for (const int rank : pairs.ranks) {
    rows.front().push_back(std::to_string(rank));
  }
  for (std::size_t i = 0; i < pairs.ranks.size(); ++i) {
    rows.push_back({row_name(facts, pairs.ranks[i])});
    for (const double value : values[i]) {
      rows.back().push_back(cell(value / unit));
    }
  }
  return head + '\n' + text::table(rows, "l" + std::string(pairs.ranks.size(), 'r'));
}

/// A matrix with one character a link: tenths of the fastest of its kind.
std::string small_matrix(const std::vector<Facts>& facts, const Pairs& pairs) {
  double inside = 0;
  double between = 0;
  const auto is_inside = [&](std::size_t i, std::size_t j) {
    return fact(facts, pairs.ranks[i]).host == fact(facts, pairs.ranks[j]).host;
  };
  const std::size_t count = pairs.ranks.size();
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) {
      double& most = is_inside(i, j) ? inside : between;
      most = std::max(most, pairs.rates[i][j]);
    }
  }
  std::vector<std::vector<std::string>> rows{{"rank", "to each in the same order"}};
  for (std::size_t i = 0; i < count; ++i) {
    std::string links;
    for (std::size_t j = 0; j < count; ++j) {
      const double share = i == j ? 0 : pairs.rates[i][j] / (is_inside(i, j) ? inside : between);
      links += i == j ? '-' : static_cast<char>('0' + std::clamp(static_cast<int>(share * 10), 0, 9));
    }
    rows.push_back({row_name(facts, pairs.ranks[i]), links});
  }
  return "Bandwidth, sender by row, in tenths of the fastest" +
         (inside > 0 ? ", inside hosts " + format_rate(inside) : std::string()) +
         (between > 0 ? ", between hosts " + format_rate(between) : std::string()) +
         " (--json FILE has all numbers)\n" + text::table(rows, "ll");
}

std::string left_out_text(const std::vector<Facts>& facts, const Pairs& pairs) {
  std::set<std::string> measured;
  for (const int rank : pairs.ranks) {
    measured.insert(fact(facts, rank).host);
  }
  std::vector<std::string> hosts;
  for (const Host& host : hosts_of(facts)) {
    if (!measured.contains(host.name)) {
      hosts.push_back(host.name);
    }
  }
  constexpr std::size_t kNamed = 4;
  std::string text = "These are " + std::to_string(pairs.ranks.size()) + " of " + counted(facts.size(), "rank") +
                     ", spread over the hosts; the links of " + counted(facts.size() - pairs.ranks.size(), "rank") +
                     " were not measured.";
  for (std::size_t i = 0; i < std::min(hosts.size(), kNamed); ++i) {
    text += (i == 0 ? " No link was measured of " : ", ") + hosts[i];
  }
  text += hosts.size() > kNamed ? " and " + counted(hosts.size() - kNamed, "more host") : "";
  return wrapped(text::printable(text) + (hosts.empty() ? "" : "."), 0) + '\n';
}

std::string pairs_text(const std::vector<Facts>& facts, const Pairs& pairs) {
  if (pairs.ranks.size() < 2) {
    return "";
  }
  std::string text = '\n' + (pairs.ranks.size() <= kMostColumns
                                 ? matrix(facts, pairs, "Bandwidth, Mbit/s, sender by row", pairs.rates, 125e3) +
                                       matrix(facts, pairs, "Latency one way, us", pairs.latencies, 1e-6)
                                 : small_matrix(facts, pairs));
  if (pairs.ranks.size() < facts.size()) {
    text += left_out_text(facts, pairs);
  }
  return text;
}

json finding_json(const Finding& finding, const std::vector<Facts>& facts) {
  return {{"level", to_string(finding.level)},
          {"subject", finding.subject},
          {"seen", finding.seen},
          {"advice", finding.advice},
          {"ranks", finding.ranks},
          {"where", finding.ranks.empty() ? "" : where(finding.ranks, facts)}};
}

}  // namespace

int exit_status(const Findings& findings) { return count_of(findings, Severity::problem) > 0 ? 1 : 0; }

std::string report_text(const std::vector<Facts>& facts, const Pairs& pairs, const Findings& findings) {
  const std::size_t hosts = hosts_of(facts).size();
  std::string text = "gradwire doctor: " + counted(facts.size(), "rank") + " on " + counted(hosts, "host") + ", " +
                     counted(count_of(findings, Severity::problem), "problem") + ", " +
                     counted(count_of(findings, Severity::warning), "warning");
  text += (pairs.ranks.size() > 1 ? ", in " + format_number(pairs.seconds, 2) + " s" : "") + "\n\n";
  for (const Finding& finding : findings) {
    text += finding_text(finding, facts);
  }
  text += pairs_text(facts, pairs);
  if (facts.size() == 1) {
    text +=
        "\nThis is one host alone. As a job it compares ranks and measures their links: gradwire doctor -- mpirun "
        "--host a,b -np 4\n";
  }
  return text;
}

std::string report_json(const std::vector<Facts>& facts, const Pairs& pairs, const Findings& findings) {
  json all{{"findings", json::array()}, {"ranks", json::array()}};
  for (const Finding& finding : findings) {
    all["findings"].push_back(finding_json(finding, facts));
  }
  for (const Facts& rank : facts) {
    all["ranks"].push_back(json::parse(to_json(rank)));
  }
  all["problems"] = count_of(findings, Severity::problem);
  all["warnings"] = count_of(findings, Severity::warning);
  all["pairs"] = {{"ranks", pairs.ranks},
                  {"ranks_left_out", pairs.ranks.empty() ? 0 : facts.size() - pairs.ranks.size()},
                  {"bytes_per_second", pairs.rates},
                  {"latency_seconds", pairs.latencies},
                  {"measured_in_seconds", pairs.seconds}};
  return all.dump(2, ' ', false, json::error_handler_t::replace) + '\n';
}

}  // namespace gradwire::doctor

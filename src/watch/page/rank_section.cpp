// The ranks of a page: a row for each, first those that others wait for.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "watch/page/sections.hpp"

namespace gradwire::watch::page {
namespace {

constexpr std::size_t kMostRows = 16;  // with more ranks the table has the worst, and a second table has all

std::string row(const Numbers& numbers, std::size_t i, bool several_hosts) {
  const Json& rank = numbers.root().at("ranks").at(i);
  const std::string place = "/ranks/" + std::to_string(i) + "/";
  const bool slow = rank.at("slow").get<bool>();
  const std::string state = rank.at("state").get<std::string>();
  std::string html =
      std::string(slow ? "<tr class=slow>" : "<tr>") + "<th scope=row class=n>" + rank.at("rank").dump() + "</th>";
  if (several_hosts) {
    html += "<td>" + escaped(rank.at("host").get<std::string>()) + "</td>";
  }
  html += numbers.cell(place + "split/compute", Unit::seconds) + numbers.cell(place + "split/exposed", Unit::seconds) +
          numbers.cell(place + "split/wait", Unit::seconds) + numbers.cell(place + "wait_share", Unit::share) +
          numbers.cell(place + "last_arrivals", Unit::share) + numbers.cell(place + "sending_rate", Unit::bits) +
          numbers.cell(place + "bytes_sent", Unit::bytes);
  return html + "<td>" +
         (slow ? "<span class=mark>slow</span>: " + escaped(cause_text(rank.at("cause").get<std::string>()))
          : state == "ended" ? ""
                             : escaped(state)) +
         "</td></tr>";
}

std::vector<std::string> head(bool several_hosts) {
  std::vector<std::string> names{"#rank"};
  if (several_hosts) {
    names.emplace_back("host");
  }
  for (const char* name :
       {"#compute", "#exposed", "#wait", "#wait share", "#last to come", "#sends at", "#sent", "state"}) {
    names.emplace_back(name);
  }
  return names;
}

std::vector<std::pair<int, Charts::Dot>> dots_of(const Json& ranks, const char* part) {
  std::vector<std::pair<int, Charts::Dot>> dots;
  for (const Json& rank : ranks) {
    dots.emplace_back(rank.at("rank").get<int>(),
                      Charts::Dot{.value = rank.at("split").at(part), .marked = rank.at("slow").get<bool>()});
  }
  return dots;
}

}  // namespace

std::string cause_text(const std::string& cause) {
  if (cause == "late_compute") {
    return "computes longer";
  }
  if (cause == "slow_link_out") {
    return "slow link out";
  }
  if (cause == "slow_link_in") {
    return "slow link in";
  }
  if (cause == "slow_encoding") {
    return "encodes slowly";
  }
  if (cause == "cores_shared") {
    return "shares its cores";
  }
  if (cause == "unknown") {
    return "cause not known";
  }
  return cause;
}

Section rank_section(const Numbers& numbers, Charts& charts) {
  const Json& ranks = numbers.root().at("ranks");
  const bool several_hosts = numbers.root().at("job").at("hosts").size() > 1;
  const bool steps = numbers.root().at("job").at("has_steps").get<bool>();
  const std::string unit = steps ? "of a step" : "of a second";
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::string html = "<div class=grid2>" +
                     charts.dots("Computing, rank by rank", unit, Unit::seconds, dots_of(ranks, "compute")) +
                     charts.dots("Waiting, rank by rank", unit, Unit::seconds, dots_of(ranks, "wait")) + "</div>\n<br>";
  const auto rows = [&](std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
      text += row(numbers, order[i], several_hosts);
    }
    return text;
  };
  if (ranks.size() <= kMostRows) {
    return {"ranks", "Ranks", html + table("All ranks; times " + unit, head(several_hosts), rows(ranks.size()))};
  }
  const std::string all = rows(ranks.size());
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto key = [&](std::size_t i) {
      const Json& rank = ranks.at(i);
      return std::pair(rank.at("slow").get<bool>(), rank.at("waited_for").get<double>());
    };
    return key(a) > key(b);
  });
  html += table("The " + std::to_string(kMostRows) + " ranks that the others wait for most; times " + unit,
                head(several_hosts), rows(kMostRows));
  html += "<details><summary>All " + std::to_string(ranks.size()) + " ranks</summary>" +
          table("All ranks; times " + unit, head(several_hosts), all) + "</details>\n";
  return {"ranks", "Ranks", html};
}

}  // namespace gradwire::watch::page

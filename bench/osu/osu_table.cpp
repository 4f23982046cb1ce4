// osu_table makes one table from rounds of bench_osu: two runs without the drop-in, one with it observing and one under
// auto. A size is right if the median ratio of both is at most 1.03, or at most the ratio of two equal runs in 95% of
// the rounds.
#include <algorithm>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/support/command_line.hpp"
#include "bench/support/placement.hpp"
#include "bench/support/report.hpp"
#include "bench/support/samples.hpp"
#include "bench/support/text_table.hpp"

namespace gradwire::bench {
namespace {

constexpr double kBound = 1.03;

Json read(const std::string& file) {
  std::ifstream stream(file);
  Json report = Json::parse(stream, nullptr, false);
  if (report.is_discarded() || !report.contains("rows")) {
    throw std::runtime_error(file + " is no report of bench_osu; run bench/osu/compare, which makes them");
  }
  return report;
}

// Microseconds by size and round.
class Runs {
 public:
  Runs(const std::string& folder, const std::string& name, int rounds) {
    for (int round = 1; round <= rounds; ++round) {
      const Json report = read(folder + "/" + name + "-" + std::to_string(round) + ".json");
      head_ = report;
      for (const Json& row : report["rows"]) {
        us_[row["bytes"].get<std::uint64_t>()].push_back(row["us"].get<double>());
      }
    }
  }
  [[nodiscard]] const std::vector<double>& of(std::uint64_t bytes) const { return us_.at(bytes); }
  [[nodiscard]] std::vector<std::uint64_t> sizes() const {
    std::vector<std::uint64_t> sizes;
    for (const auto& [bytes, us] : us_) {
      sizes.push_back(bytes);
    }
    return sizes;
  }
  [[nodiscard]] const Json& head() const { return head_; }

 private:
  std::map<std::uint64_t, std::vector<double>> us_;
  Json head_;
};

std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> all;
  for (std::size_t i = 0; i < a.size(); ++i) {
    all.push_back(a[i] / b[i]);
  }
  return all;
}

Json row_of(std::uint64_t bytes, const Runs& first, const Runs& again, const Runs& observing, const Runs& with,
            const Runs* named) {
  std::vector<double> library;
  std::vector<double> apart;
  for (std::size_t i = 0; i < first.of(bytes).size(); ++i) {
    const double a = first.of(bytes)[i];
    const double b = again.of(bytes)[i];
    library.push_back((a + b) / 2);
    apart.push_back(std::max(a / b, b / a));
  }
  const double ratio = median(ratios(with.of(bytes), library));
  const double observed = median(ratios(observing.of(bytes), library));
  const double spread = quantile(apart, 0.95);
  Json row{{"bytes", bytes},
           {"library_us", median(library)},
           {"observing_us", median(observing.of(bytes))},
           {"observing_ratio", observed},
           {"drop_in_us", median(with.of(bytes))},
           {"ratio", ratio},
           {"spread", spread},
           {"right", std::max(ratio, observed) <= std::max(kBound, spread)}};
  if (named != nullptr) {
    row["named_us"] = median(named->of(bytes));
    row["to_named"] = median(ratios(with.of(bytes), named->of(bytes)));
    row["right"] = row["right"].get<bool>() && row["to_named"].get<double>() <= std::max(kBound, spread);
  }
  return row;
}

int make(const std::string& folder, int rounds, const std::string& codec, const std::string& where,
         const std::string& json, const std::string& markdown) {
  const Runs first(folder, "library", rounds);
  const Runs again(folder, "again", rounds);
  const Runs observing(folder, "observing", rounds);
  const Runs with(folder, "drop_in", rounds);
  std::vector<Runs> named;
  std::vector<std::string> header{"bytes", "library us", "observing us", "ratio", "auto us", "ratio", "A/A 95%", ""};
  if (!codec.empty()) {
    named.emplace_back(folder, "named", rounds);
    header.insert(header.end() - 1, {codec + " us", "to " + codec});
  }
  Json report = make_report("gradwire.osu_table.1");
  report["ranks"] = first.head()["ranks"];
  report["placement"] = first.head()["placement"];
  report["where"] = where;
  report["rounds"] = rounds;
  TextTable table(header);
  int wrong = 0;
  for (const std::uint64_t bytes : first.sizes()) {
    const Json row = row_of(bytes, first, again, observing, with, named.empty() ? nullptr : &named.front());
    report["rows"].push_back(row);
    const auto number = [&](const char* key, int digits) { return fixed(row[key].get<double>(), digits); };
    std::vector<std::string> cells{std::to_string(bytes),        number("library_us", 2), number("observing_us", 2),
                                   number("observing_ratio", 3), number("drop_in_us", 2), number("ratio", 3),
                                   number("spread", 3)};
    if (!named.empty()) {
      cells.insert(cells.end(), {number("named_us", 2), number("to_named", 3)});
    }
    cells.emplace_back(row["right"].get<bool>() ? "" : "slower");
    wrong += row["right"].get<bool>() ? 0 : 1;
    table.add(std::move(cells));
  }
  const std::string head =
      "MPI_Allreduce of floats in the manner of OSU's benchmark, " + std::to_string(report["ranks"].get<int>()) +
      " ranks, " + where + ", " + describe(parse_placement(report["placement"].get<std::string>())) +
      ":\nwithout the drop-in (library), with it and no codec (observing), and with codec auto; medians of " +
      std::to_string(rounds) + " rounds; A/A: how far two equal runs differ in 95% of them; " + std::to_string(wrong) +
      " sizes slower\n";
  publish(head, table, {markdown, json}, report);
  return 0;
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::program("osu_table", [&] {
    std::string folder;
    std::string codec;
    std::string where = "shared memory";
    std::string json;
    std::string markdown;
    int rounds = 1;
    gradwire::bench::CommandLine line{"Makes a table of the runs that bench/osu/compare left in a folder."};
    line.option("folder", folder,
                "Holds library-N.json, again-N.json, observing-N.json, drop_in-N.json, perhaps named-N.json")
        .required();
    line.option("--rounds", rounds, "N goes from 1 to this").range(1, 1000);
    line.option("--codec", codec, "That of the named runs; none: there are none");
    line.option("--where", where, "For the head of the table");
    line.option("--json", json, "Write the rows to this file");
    line.option("--markdown", markdown, "Write the table to this file");
    line.parse(argc, argv);
    return gradwire::bench::make(folder, rounds, codec, where, json, markdown);
  });
}

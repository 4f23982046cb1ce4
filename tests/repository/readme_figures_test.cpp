// Tests that the times in README and in docs/gains.md are in the tables that they name, and that their "times as fast"
// follow from them. A loss of README must be in its table, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "repository/layering.hpp"

namespace gradwire::repository {
namespace {

// A decimal number as it was written: it stands for every number that rounds to it.
struct Figure {
  double value = 0;
  double half = 0;    // half of its last digit
  bool ring = false;  // the time of a perfect ring, which is computed and in no table
};

std::vector<Figure> figures_of(const std::string& text) {
  static const std::regex kFigure(R"((ring )?([0-9]+)\.([0-9]+))");
  std::vector<Figure> figures;
  for (std::sregex_iterator it(text.begin(), text.end(), kFigure), end; it != end; ++it) {
    figures.push_back({std::stod((*it)[2].str() + "." + (*it)[3].str()),
                       0.5 * std::pow(10.0, -static_cast<double>((*it)[3].length())), (*it)[1].matched});
  }
  return figures;
}

// Returns whether the figure is in the table; tables have ms or us.
bool stands_in(const Figure& figure, const std::vector<Figure>& table) {
  return std::any_of(table.begin(), table.end(), [&](const Figure& one) {
    return std::abs(one.value - figure.value) <= figure.half * 1.001 ||
           std::abs(one.value / 1000 - figure.value) <= figure.half * 1.001;
  });
}

// Returns whether a / b, where each is any number that rounds to its written form, may round to `ratio`.
bool follows(const Figure& ratio, const Figure& a, const Figure& b) {
  return (a.value - a.half) / (b.value + b.half) <= ratio.value + ratio.half &&
         (a.value + a.half) / (b.value - b.half) >= ratio.value - ratio.half;
}

struct Row {
  std::string name;
  std::vector<Figure> without, with, ratios;
  bool loses = false;
  std::string document;
};

// A document whose first table has five columns: the case, without, with, what follows from them, and a link.
struct Comparison {
  const char* file;
  const char* folder;  // that its links are relative to
  const char* head;    // what the first line of the table begins with

  [[nodiscard]] std::string text() const { return read_file(kRepository / file); }
};

constexpr Comparison kReadme = {"README.md", "", "| link |"};
constexpr Comparison kGains = {"docs/gains.md", "docs", "| case |"};

std::vector<Row> rows_of(const std::string& readme, const std::string& head) {
  std::map<std::string, std::string> links;
  static const std::regex kDefinition(R"(\n(\[`[^\]]+`\]): ([^\s#]+))");
  for (std::sregex_iterator it(readme.begin(), readme.end(), kDefinition), end; it != end; ++it) {
    links[(*it)[1]] = (*it)[2];
  }
  static const std::regex kLink(R"(\[`[^\]]+`\]|\]\(([^)#]+))");
  std::vector<Row> rows;
  std::istringstream lines(readme.substr(readme.find(head)));
  for (std::string line; std::getline(lines, line) && line.starts_with("|");) {
    std::vector<std::string> cells;
    std::istringstream parts(line.substr(1));
    for (std::string cell; std::getline(parts, cell, '|');) {
      cells.push_back(cell);
    }
    if (cells.size() != 5 || line.starts_with("|-") || line.starts_with(head)) {
      continue;
    }
    Row row{cells[0],
            figures_of(cells[1]),
            figures_of(cells[2]),
            figures_of(cells[3]),
            cells[3].find("**loses**:") != std::string::npos,
            rows.empty() ? "" : rows.back().document};
    std::smatch link;
    if (std::regex_search(cells[4], link, kLink)) {
      row.document = link[1].matched ? link[1].str() : links[link[0]];
    }
    rows.push_back(row);
  }
  return rows;
}

std::vector<std::string> mistakes(const std::string& text, const std::string& head, const std::string& folder = "") {
  std::vector<std::string> found;
  for (const Row& row : rows_of(text, head)) {
    const std::vector<Figure> table = figures_of(read_file(kRepository / folder / row.document));
    for (const auto* cell : {&row.without, &row.with}) {
      for (const Figure& figure : *cell) {
        if (!figure.ring && !stands_in(figure, table)) {
          found.push_back(row.name + ": " + std::to_string(figure.value) + " is not in " + row.document);
        }
      }
    }
    const std::size_t pairs =
        row.with.empty() || row.without.empty() ? 0 : std::max(row.without.size(), row.with.size());
    for (std::size_t i = 0; i < std::min(pairs, row.ratios.size()); ++i) {
      const Figure& without = row.without[std::min(i, row.without.size() - 1)];
      const Figure& with = row.with[std::min(i, row.with.size() - 1)];
      const bool right = row.loses ? follows(row.ratios[i], with, without) : follows(row.ratios[i], without, with);
      if (!right && !stands_in(row.ratios[i], table)) {  // the table itself has ratios of paired runs
        found.push_back(row.name + ": " + std::to_string(row.ratios[i].value) + " times does not follow");
      }
    }
  }
  return found;
}

TEST(ReadmeFigures, StandInTheirTables) {
  for (const Comparison& comparison : {kReadme, kGains}) {
    for (const std::string& mistake : mistakes(comparison.text(), comparison.head, comparison.folder)) {
      ADD_FAILURE() << comparison.file << ": " << mistake;
    }
  }
  EXPECT_EQ(rows_of(kReadme.text(), kReadme.head).size(), 3U);
  EXPECT_GE(rows_of(kGains.text(), kGains.head).size(), 15U);
}

TEST(ReadmeFigures, WrongOnesAreFound) {
  const std::string first = "| case |", head = first + "\n|---|---|---|---|---|\n",
                    link = " | [`lab-2`] |\n\n[`lab-2`]: docs/results/lab-2.md\n";
  EXPECT_TRUE(mistakes(head + "| a | ring 561.8, Gloo 570.1 | 141.5 | **3.97**, 4.0" + link, first).empty());
  EXPECT_EQ(mistakes(head + "| a | Gloo 571.1 | 141.5 | 4.0" + link, first).size(), 1U) << "not in the table";
  EXPECT_EQ(mistakes(head + "| a | Gloo 570.1 | 141.5 | 4.4" + link, first).size(), 1U) << "does not follow";
  EXPECT_EQ(mistakes(head + "| a | Gloo 141.5 | 570.1 | **loses**: 4.4 times" + link, first).size(), 1U);
  EXPECT_EQ(mistakes(head + "| a | Gloo 570.1 | 141.5 | -0.77 %" + link, first).size(), 1U) << "a loss";
}

TEST(ReadmeFigures, GainsAreAgainstTheBestAndLossesStandBeside) {
  const std::vector<Row> rows = rows_of(kGains.text(), kGains.head);
  const auto between_hosts = [](const Row& row) {
    return row.name.find("MiB, ") != std::string::npos && row.name.find("hosts") != std::string::npos;
  };
  for (const Row& row : rows) {
    if (between_hosts(row) && !row.loses) {
      EXPECT_TRUE(std::any_of(row.without.begin(), row.without.end(), [](const Figure& f) { return f.ring; }))
          << row.name << " is not compared with a perfect ring";
    }
  }
  EXPECT_GE(std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.loses; }), 3);
}

}  // namespace
}  // namespace gradwire::repository

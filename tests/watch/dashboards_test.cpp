// Tests that every query of the dashboard and of the alerts in docs/monitoring names metrics and labels that exist. A
// separate test runs promtool on them (tests/systems/prometheus).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "watch/aggregate.hpp"

namespace gradwire::watch {
namespace {

struct Known {
  MetricType type = MetricType::gauge;
  std::set<std::string> labels{"part", "rank", "gradwire_job", "job",
                               "instance"};  // of every sample, and added by Prometheus
};

void add_labels(Known& known, const Labels& labels) {
  for (const auto& [name, value] : labels) {
    known.labels.insert(name);
  }
}

// Returns the metrics of a rank that has samples of every family.
std::map<std::string, Known> all_families() {
  Aggregate aggregate([](observe::SourceId) { return std::optional(observe::Source{.shares_process = true}); });
  std::vector<observe::Event> events;
  for (int kind = 0; kind < observe::kEventKinds; ++kind) {
    observe::Event event{.source = 1, .duration = 1};
    event.kind = static_cast<observe::EventKind>(kind);
    events.push_back(event);
  }
  aggregate.add(events, {.nanoseconds_per_tick = 1});
  SessionStatistics statistics;
  statistics.device_memory.emplace();
  statistics.groups.resize(1);
  statistics.groups[0].codec = "auto: int8 3";
  statistics.groups[0].late.results = 1;
  statistics.groups[0].totals.squared_error = statistics.groups[0].totals.squared_norm = 1;
  observe::Knowledge known;
  known.link.emplace().ranks_per_node = 2;
  known.health.resize(1);
  known.notes.emplace_back("loss", 1.0);
  known.memory = observe::Knowledge::Memory{};
  known.rows = observe::Knowledge::Rows{};
  aggregate.add({.source = 1, .statistics = statistics, .slow = observe::SlowState{}, .knowledge = known});
  const std::vector<ReplacedCalls> calls(1);
  std::map<std::string, Known> all;
  for (const Family& family : families(aggregate.ranks().at(0), {}, calls)) {
    EXPECT_TRUE(!family.samples.empty() || !family.histograms.empty()) << family.name << ": give it a sample above";
    Known& entry = all[family.name];
    entry.type = family.type;
    for (const Sample& sample : family.samples) {
      add_labels(entry, sample.labels);
    }
    for (const HistogramSample& sample : family.histograms) {
      add_labels(entry, sample.labels);
    }
  }
  return all;
}

// Returns all series by the names that queries use: those of histograms have suffixes.
std::map<std::string, Known> all_series() {
  std::map<std::string, Known> series;
  for (const auto& [name, known] : all_families()) {
    if (known.type != MetricType::histogram) {
      series[name] = known;
      continue;
    }
    series[name + "_sum"] = series[name + "_count"] = series[name + "_bucket"] = known;
    series[name + "_bucket"].labels.insert("le");
  }
  return series;
}

std::vector<std::string> matches(const std::string& text, const std::string& pattern) {
  std::vector<std::string> found;
  const std::regex regex(pattern);
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match) {
    found.push_back((*match)[1]);
  }
  return found;
}

// Returns the problem with a query; empty if there is none.
std::string wrong_in(const std::string& query) {
  static const std::map<std::string, Known> series = all_series();
  const std::regex selector(R"((gradwire_\w+)(\{([^}]*)\})?)");
  std::set<std::string> labels;  // labels of any of its metrics
  int metrics = 0;
  for (std::sregex_iterator match(query.begin(), query.end(), selector), end; match != end; ++match) {
    if ((*match)[1] == "gradwire_job") {
      continue;  // a label
    }
    const auto known = series.find((*match)[1]);
    if (known == series.end()) {
      return "there is no metric " + (*match)[1].str();
    }
    ++metrics;
    labels.insert(known->second.labels.begin(), known->second.labels.end());
    for (const std::string& label : matches((*match)[3], R"((\w+)\s*[=!]~?=?)")) {
      if (!known->second.labels.contains(label)) {
        return (*match)[1].str() + " has no label " + label;
      }
    }
  }
  for (const std::string& list :
       matches(query, R"(\b(?:by|without|on|ignoring|group_left|group_right) ?\(([^)]*)\))")) {
    for (const std::string& label : matches(list, R"((\w+))")) {
      if (!labels.contains(label)) {
        return "none of its metrics has the label " + label;
      }
    }
  }
  return metrics > 0 ? "" : "it names no metric";
}

std::string read(const std::string& file) {
  std::ifstream stream(std::string(GRADWIRE_SOURCE_DIR) + "/docs/" + file);
  EXPECT_TRUE(stream) << file << " is missing";
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

TEST(Dashboards, ALookAtAQuerySeesWhatIsWrong) {
  EXPECT_EQ(wrong_in("rate(gradwire_steps_total{job=~\"$job\"}[5m])"), "");
  EXPECT_EQ(wrong_in("sum by (le) (rate(gradwire_step_seconds_bucket[5m]))"), "");
  EXPECT_EQ(wrong_in("gradwire_step_total"), "there is no metric gradwire_step_total");
  EXPECT_EQ(wrong_in("gradwire_step_seconds"), "there is no metric gradwire_step_seconds") << "a histogram";
  EXPECT_EQ(wrong_in("gradwire_steps_total{group=\"a\"}"), "gradwire_steps_total has no label group");
  EXPECT_EQ(wrong_in("sum by (rank, stage) (gradwire_steps_total)"), "none of its metrics has the label stage");
  EXPECT_EQ(wrong_in("up == 0"), "it names no metric");
}

TEST(Dashboards, OfGrafanaAskForWhatThereIs) {
  const nlohmann::json dashboard = nlohmann::json::parse(read("monitoring/dashboard.json"));
  int queries = 0;
  std::set<int> ids;
  for (const auto& panel : dashboard.at("panels")) {
    EXPECT_TRUE(ids.insert(panel.at("id").get<int>()).second);
    EXPECT_LE(panel.at("gridPos").at("x").get<int>() + panel.at("gridPos").at("w").get<int>(), 24);
    for (const auto& target : panel.value("targets", nlohmann::json::array())) {
      const auto query = target.at("expr").get<std::string>();
      EXPECT_EQ(wrong_in(query), "") << panel.at("title") << ": " << query;
      // A legend names labels that the query keeps.
      for (const std::string& label : matches(target.at("legendFormat").get<std::string>(), R"(\{\{(\w+)\}\})")) {
        const bool sums = std::regex_search(query, std::regex(R"(\b(sum|min|max|avg|count|quantile)\b)"));
        EXPECT_TRUE(!sums || std::regex_search(query, std::regex(R"(by \([^)]*\b)" + label + R"(\b)"))) << query;
      }
      ++queries;
    }
  }
  EXPECT_GT(queries, 20);
  for (const auto& variable : dashboard.at("templating").at("list")) {
    if (variable.at("type") == "query") {
      const auto query = variable.at("query").get<std::string>();
      EXPECT_EQ(wrong_in(query), "") << query;
    }
  }
}

TEST(Dashboards, AlertsAskForWhatThereIs) {
  const std::string text = read("monitoring/alerts.yml");
  // An expression ends where the rule's next key begins.
  const std::vector<std::string> queries = matches(text, R"(\n        expr:((?:[^\n]*\n(?!        [a-z]+:))*[^\n]*))");
  EXPECT_EQ(queries.size(), matches(text, R"((- alert:))").size());
  EXPECT_GE(queries.size(), 6U);
  for (const std::string& query : queries) {
    EXPECT_EQ(wrong_in(query), "") << query;
  }
}

TEST(Dashboards, QueriesOfTheDocumentAskForWhatThereIs) {
  int queries = 0;
  for (const std::string& query :
       matches(read("reference/metrics.md"), R"(\n    ((?:rate|sum|max|min|avg|histogram_quantile)[ (][^\n#]*))")) {
    EXPECT_EQ(wrong_in(query), "") << query;
    ++queries;
  }
  EXPECT_GE(queries, 4);
}

}  // namespace
}  // namespace gradwire::watch

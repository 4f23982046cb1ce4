// Makes histories like those of a job with many ranks, with planted anomalies.
#pragma once

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "watch/history.hpp"
#include "watch/page/page.hpp"
#include "watch/page/units.hpp"

namespace gradwire::test {

namespace page = watch::page;

/// A rank of a job whose steps are all equal.
struct PlannedRank {
  double step = 0.05;  // seconds
  double compute = 0.03;
  double encode = 0.001;
  double reduce = 0.001;
  double decode = 0.001;
  double wait = 0.01;
  double sending_rate = 1e9;  // bytes per second
  std::string cause = {};     // the cause that ranks agreed on, in the second half
  double last_arrivals = -1;
};

struct PlannedJob {
  int ranks = 4;
  double steps = 1000;
  std::size_t samples = 128;
  double bytes_sent = 1e6;  // by a rank in a step
  double ratio = 4;
  std::function<PlannedRank(int)> rank = [](int) { return PlannedRank{}; };
};

/// Returns the columns of one rank, as in its file.
inline page::RankHistory planned_history(const PlannedJob& job, int rank) {
  const PlannedRank plan = job.rank(rank);
  page::RankHistory history{.file = "gradwire-library-rank-" + std::to_string(rank) + ".history",
                            .part = "library",
                            .rank = rank,
                            .world = job.ranks,
                            .version = "0.2.0",
                            .transport = "mpi",
                            .host = "node" + std::to_string(rank / 8),
                            .command = {"./train", "--steps", "100000"},
                            .environment = {{"GRADWIRE_REPORT", "/tmp/report"}},
                            .started = 1.7e9,
                            .written = 1.7e9 + job.steps * plan.step,
                            .ended = true,
                            .codecs = {"int8"},
                            .causes = {"", plan.cause.empty() ? "paused" : plan.cause}};
  page::GroupHistory group{
      .name = "default", .codec = "int8", .algorithm = "two_shot", .sync = "step", .in_use = {}, .columns = {}};
  for (const std::string_view name : watch::kHistoryCounters) {
    history.columns[std::string(name)].assign(job.samples, 0);
  }
  for (const std::string_view name : watch::kHistoryGroupCounters) {
    group.columns[std::string(name)].assign(job.samples, 0);
  }
  auto& columns = history.columns;
  columns["slow"].assign(job.samples, 0);
  columns["last_arrivals"].assign(job.samples, plan.last_arrivals < 0 ? std::nan("") : plan.last_arrivals);
  group.in_use.assign(job.samples, 0);
  for (std::size_t i = 0; i < job.samples; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(job.samples - 1);
    const double steps = share * job.steps;
    history.time.push_back(steps * plan.step);
    const auto set = [&](const char* name, double a_step) { columns[name][i] = steps * a_step; };
    set("steps", 1);
    set("timed_steps", 1);
    set("finishes", 1);
    set("step_seconds", plan.step);
    set("finish_seconds", plan.step - plan.compute);
    set("exposed_seconds", plan.step - plan.compute);
    set("encode_seconds", plan.encode);
    set("reduce_seconds", plan.reduce);
    set("decode_seconds", plan.decode);
    set("wait_seconds", plan.wait);
    set("message_bytes", job.bytes_sent);
    set("sending_seconds", job.bytes_sent / plan.sending_rate);
    group.columns["calls"][i] = steps;
    group.columns["bytes_in"][i] = steps * job.bytes_sent * 2;
    group.columns["bytes_sent"][i] = steps * job.bytes_sent;
    group.columns["bytes_inter"][i] = steps * job.bytes_sent;
    group.columns["bytes_uncompressed"][i] = steps * job.bytes_sent * job.ratio;
    columns["slow"][i] = !plan.cause.empty() && share > 0.5 ? 1 : 0;
  }
  history.groups.push_back(std::move(group));
  return history;
}

inline page::Job planned_job(const PlannedJob& plan) {
  std::vector<page::RankHistory> histories;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    histories.push_back(planned_history(plan, rank));
  }
  return page::newest_job(std::move(histories), {}, "/tmp/report");
}

inline page::Summary summary_of(const page::Job& job) {
  page::Summary summary = page::summarize(job);
  summary.advice = page::advice(summary);
  return summary;
}

/// Returns the file that such a rank would leave.
inline std::string file_text(const page::RankHistory& history) {
  using nlohmann::json;
  const auto column = [](const page::Column& values) {
    json all = json::array();
    for (const double value : values) {
      all.push_back(std::isfinite(value) ? json(value) : json());
    }
    return all;
  };
  json root = {{"format", "gradwire history"},   {"version", 1},
               {"gradwire", history.version},    {"part", history.part},
               {"rank", history.rank},           {"world", history.world},
               {"transport", history.transport}, {"host", history.host},
               {"command", history.command},     {"environment", history.environment},
               {"started", history.started},     {"written", history.written},
               {"ended", history.ended},         {"interval", 0.5},
               {"codecs", history.codecs},       {"causes", history.causes},
               {"switches", json::array()},      {"replaced", json::array()}};
  root["samples"]["time"] = column(history.time);
  for (const auto& [name, values] : history.columns) {
    root["samples"][name] = column(values);
  }
  root["groups"] = json::array();
  for (const page::GroupHistory& group : history.groups) {
    json one = {{"name", group.name}, {"codec", group.codec}, {"algorithm", group.algorithm}, {"sync", group.sync}};
    one["in_use"] = column(group.in_use);
    for (const auto& [name, values] : group.columns) {
      one[name] = column(values);
    }
    root["groups"].push_back(one);
  }
  root["gauges"] = json::object();
  for (const auto& [name, values] : history.gauges) {
    root["gauges"][name] = column(values);
  }
  return root.dump();
}

inline void write_histories(const page::Job& job, const std::filesystem::path& folder) {
  for (const page::RankHistory& history : job.ranks) {
    std::ofstream(folder / history.file) << file_text(history);
  }
}

/// Returns the numbers of a page that name their place in the JSON: place, mark of the unit, text.
struct ShownNumber {
  std::string place;
  std::string mark;
  std::string text;
};
inline std::vector<ShownNumber> shown_numbers(const std::string& html) {
  static const std::regex number(R"re(data-n="([^"]*)" data-u="?([a-zA-Z])"?>([^<]*)<)re");
  std::vector<ShownNumber> all;
  for (std::sregex_iterator match(html.begin(), html.end(), number), end; match != end; ++match) {
    all.push_back({(*match)[1], (*match)[2], (*match)[3]});
  }
  return all;
}

inline page::Unit unit_of(const std::string& mark) {
  for (int i = 0; i <= static_cast<int>(page::Unit::plain); ++i) {
    if (page::mark_of(static_cast<page::Unit>(i)) == mark) {
      return static_cast<page::Unit>(i);
    }
  }
  throw std::runtime_error("no unit " + mark);
}

/// Returns the differences between the page's numbers and the JSON's.
inline std::vector<std::string> differences(const std::string& html, const nlohmann::ordered_json& report) {
  std::vector<std::string> all;
  for (const ShownNumber& number : shown_numbers(html)) {
    const auto& value = report.at(nlohmann::ordered_json::json_pointer(number.place));
    const std::string expected =
        page::shown(unit_of(number.mark), value.is_null() ? std::nan("") : value.get<double>());
    if (expected != number.text) {
      all.push_back(number.place + " is shown as " + number.text + " and is " + expected);
    }
  }
  return all;
}

/// Returns the link targets that do not exist.
inline std::vector<std::string> broken_anchors(const std::string& html) {
  static const std::regex link(R"re(href="#([^"]*)")re");
  std::vector<std::string> broken;
  for (std::sregex_iterator match(html.begin(), html.end(), link), end; match != end; ++match) {
    const std::string id = (*match)[1];
    if (html.find("id=" + id + ">") == std::string::npos && html.find("id=\"" + id + "\"") == std::string::npos) {
      broken.push_back(id);
    }
  }
  return broken;
}

/// Plans a job in which rank 2 computes for longer than the others.
inline PlannedJob one_slow() {
  return {.rank = [](int rank) {
    return rank == 2 ? PlannedRank{.compute = 0.045, .wait = 0.001} : PlannedRank{.compute = 0.025, .wait = 0.02};
  }};
}

}  // namespace gradwire::test

#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "gradwire/version.hpp"

namespace ctr_hybrid {
namespace {

using Json = nlohmann::ordered_json;

/// One mode with all its seeds.
struct Row {
  std::string mode;
  double samples_per_second = 0;  // the mean over seeds, as are the next members
  double speed_up = NAN;          // over synchronous
  double log_loss = 0;
  double auc = 0;           // percent
  double auc_change = NAN;  // percentage points over synchronous, paired by seed
  double auc_error = NAN;   // standard error of the change
  double bytes_per_step = 0;
  Run::Ages rows = {};
  Run::Ages dense = {};
};

std::vector<const Run*> runs_of(const Report& report, const std::string& mode) {
  std::vector<const Run*> runs;
  for (const Run& run : report.runs) {
    if (run.mode == mode) {
      runs.push_back(&run);
    }
  }
  return runs;
}

void compare(Row& row, const std::vector<const Run*>& runs, const std::vector<const Run*>& base) {
  if (base.size() != runs.size()) {
    return;
  }
  double speed = 0;
  double sum = 0;
  double squares = 0;
  const auto count = static_cast<double>(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    speed += runs[i]->samples_per_second / base[i]->samples_per_second / count;
    const double change = 100 * (runs[i]->curve.back().auc - base[i]->curve.back().auc);
    sum += change;
    squares += change * change;
  }
  row.speed_up = speed;
  row.auc_change = sum / count;
  row.auc_error = count > 1 ? std::sqrt(std::max(0.0, squares / count - sum * sum / count / count) / (count - 1)) : NAN;
}

std::vector<Row> rows_of(const Report& report) {
  std::vector<Row> rows;
  for (const Run& run : report.runs) {
    if (std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.mode == run.mode; })) {
      continue;
    }
    const std::vector<const Run*> runs = runs_of(report, run.mode);
    Row row{.mode = run.mode};
    const auto count = static_cast<double>(runs.size());
    for (const Run* one : runs) {
      row.samples_per_second += one->samples_per_second / count;
      row.log_loss += one->curve.back().log_loss / count;
      row.auc += 100 * one->curve.back().auc / count;
      row.bytes_per_step += one->bytes_per_step / count;
      row.rows.mean += one->rows.mean / count;
      row.rows.maximum = std::max(row.rows.maximum, one->rows.maximum);
      row.dense.mean += one->dense.mean / count;
      row.dense.maximum = std::max(row.dense.maximum, one->dense.maximum);
    }
    compare(row, runs, runs_of(report, "synchronous"));
    rows.push_back(row);
  }
  return rows;
}

std::string number(double value, int digits, bool sign = false) {
  char text[64];
  std::snprintf(text, sizeof text, sign ? "%+.*f" : "%.*f", digits, value);
  return std::isnan(value) ? "-" : text;
}

std::string describe(const Report& report) {
  const TrainingOptions& options = report.options;
  return "ctr_hybrid: " + std::to_string(report.ranks) + " ranks, " +
         (options.trainer.link.empty() ? "the link as it is" : "emulated " + options.trainer.link) + ", " +
         std::to_string(options.steps) + " steps of " + std::to_string(options.batch) + " samples a rank; " +
         (options.slow_rank_ms > 0 ? "the last rank " + number(options.slow_rank_ms, 0) + " ms slower; " : "") +
         report.data;
}

std::vector<std::vector<std::string>> cells(const Report& report) {
  std::vector<std::vector<std::string>> table{{"mode", "samples/s", "speed-up", "log loss", "AUC %", "AUC - sync", "+-",
                                               "KB/step", "mean age", "max age", "dense mean", "dense max"}};
  for (const Row& row : rows_of(report)) {
    const bool aged = row.mode != "synchronous";
    const bool dense_aged = row.mode == "asynchronous";
    table.push_back({row.mode, number(row.samples_per_second, 0), number(row.speed_up, 2), number(row.log_loss, 4),
                     number(row.auc, 2), number(row.auc_change, 3, true), number(row.auc_error, 3),
                     number(row.bytes_per_step / 1e3, 0), aged ? number(row.rows.mean, 2) : "-",
                     aged ? std::to_string(row.rows.maximum) : "-", dense_aged ? number(row.dense.mean, 2) : "-",
                     dense_aged ? std::to_string(row.dense.maximum) : "-"});
  }
  return table;
}

void write(const std::string& file, const std::string& text) {
  std::error_code failed;
  if (!file.starts_with("/dev/") && std::filesystem::is_symlink(std::filesystem::symlink_status(file, failed))) {
    std::filesystem::remove(file, failed);  // removes a link, not its target
  }
  std::ofstream stream(file);
  if (!(stream << text).flush()) {
    throw std::runtime_error(file + ": cannot be written");
  }
}

}  // namespace

void print_table(const Report& report) {
  std::printf("\n%s\n\n", describe(report).c_str());
  for (const auto& row : cells(report)) {
    std::printf("%-13s", row[0].c_str());
    for (std::size_t i = 1; i < row.size(); ++i) {
      std::printf(" %10s", row[i].c_str());
    }
    std::printf("\n");
  }
}

void write_markdown(const std::string& file, const Report& report) {
  std::string text = describe(report) + "\n\n";
  bool head = true;
  for (const auto& row : cells(report)) {
    for (const std::string& cell : row) {
      text += "| " + cell + " ";
    }
    text += "|\n";
    if (head) {
      text += "|---|";
      for (std::size_t i = 1; i < row.size(); ++i) {
        text += "---:|";
      }
      text += "\n";
    }
    head = false;
  }
  write(file, text);
}

void write_json(const std::string& file, const Report& report) {
  const TrainingOptions& options = report.options;
  Json json{{"schema", "gradwire.ctr_hybrid.1"},
            {"gradwire", std::string(gradwire::kVersion)},
            {"ranks", report.ranks},
            {"link", options.trainer.link},
            {"data", report.data},
            {"steps", options.steps},
            {"batch", options.batch},
            {"width", options.trainer.width},
            {"learning_rate", options.trainer.learning_rate},
            {"policy", options.trainer.policy.source},
            {"staleness", report.table.staleness},
            {"codec", report.table.codec.to_string()},
            {"gradient_codec", report.table.gradient_codec.to_string()},
            {"slow_rank_ms", options.slow_rank_ms},
            {"rows", Json::array()}};
  for (const Run& run : report.runs) {
    Json row{{"mode", run.mode},
             {"seed", run.seed},
             {"seconds", run.seconds},
             {"samples_per_second", run.samples_per_second},
             {"bytes_per_step", run.bytes_per_step},
             {"maximum_age", run.rows.maximum},
             {"mean_age", run.rows.mean},
             {"dense_maximum_age", run.dense.maximum},
             {"dense_mean_age", run.dense.mean},
             {"log_loss", run.curve.back().log_loss},
             {"auc", run.curve.back().auc},
             {"curve", Json::array()}};
    for (const Point& point : run.curve) {
      row["curve"].push_back(
          {{"steps", point.steps}, {"seconds", point.seconds}, {"log_loss", point.log_loss}, {"auc", point.auc}});
    }
    json["rows"].push_back(row);
  }
  write(file, json.dump(2) + "\n");
}

}  // namespace ctr_hybrid

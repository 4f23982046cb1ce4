// Converts OTLP's JSON back to the text that Prometheus reads, so that both can be compared.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "watch/metric.hpp"

namespace gradwire::watch {

inline Labels labels_in(const nlohmann::json& attributes) {
  Labels labels;
  for (const nlohmann::json& attribute : attributes) {
    const nlohmann::json& value = attribute.at("value");
    labels.emplace_back(attribute.at("key"), value.value("stringValue", value.value("intValue", "")));
  }
  return labels;
}

inline double double_in(const nlohmann::json& value) {
  if (!value.is_string()) {
    return value.get<double>();
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return value == "NaN" ? std::numeric_limits<double>::quiet_NaN() : value == "Infinity" ? kInfinity : -kInfinity;
}

// One value in the middle of each range stands for all values in it; the sum is kept separately.
inline HistogramSample histogram_in(const nlohmann::json& point) {
  const nlohmann::json& bounds = point.at("explicitBounds");
  Histogram histogram(bounds.at(0).get<double>());
  EXPECT_EQ(bounds.size(), Histogram::kBounds);
  const nlohmann::json& counts = point.at("bucketCounts");
  EXPECT_EQ(counts.size(), Histogram::kBounds + 1);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double value = i < bounds.size() ? bounds.at(i).get<double>() : 2 * bounds.back().get<double>();
    for (std::uint64_t n = std::stoull(counts.at(i).get<std::string>()); n > 0; --n) {
      histogram.add(value);
    }
  }
  EXPECT_EQ(std::to_string(histogram.count()), point.at("count"));
  return {labels_in(point.at("attributes")), histogram};
}

/// Samples without the sums of histograms, of which OTLP has the number and not the text: those are in `sums`.
struct OtlpLine {
  Labels resource;
  std::vector<Family> families;
  std::vector<double> sums;  // sums of histograms, in their order
  std::vector<std::string> units;
  std::vector<std::string> starts;
  std::vector<std::string> times;
};

inline OtlpLine read_otlp(const std::string& text) {
  OtlpLine line;
  const nlohmann::json root = nlohmann::json::parse(text);
  const nlohmann::json& all = root.at("resourceMetrics").at(0);
  line.resource = labels_in(all.at("resource").at("attributes"));
  const nlohmann::json& scope = all.at("scopeMetrics").at(0);
  EXPECT_EQ(scope.at("scope").at("name"), "gradwire");
  for (const nlohmann::json& metric : scope.at("metrics")) {
    const bool sum = metric.contains("sum");
    const bool histogram = metric.contains("histogram");
    Family family{metric.at("name").get<std::string>() + (sum ? "_total" : ""), metric.at("description"),
                  sum         ? MetricType::counter
                  : histogram ? MetricType::histogram
                              : MetricType::gauge};
    const nlohmann::json& data = metric.at(sum ? "sum" : histogram ? "histogram" : "gauge");
    if (sum) {
      EXPECT_EQ(data.at("isMonotonic"), true) << family.name;
    }
    EXPECT_EQ(data.value("aggregationTemporality", 0), sum || histogram ? 2 : 0) << family.name;
    for (const nlohmann::json& point : data.at("dataPoints")) {
      line.times.push_back(point.at("timeUnixNano"));
      if (sum || histogram) {
        line.starts.push_back(point.at("startTimeUnixNano"));
      }
      if (histogram) {
        family.histograms.push_back(histogram_in(point));
        line.sums.push_back(double_in(point.at("sum")));
      } else {
        family.samples.push_back({labels_in(point.at("attributes")), double_in(point.at("asDouble"))});
      }
    }
    line.units.push_back(metric.at("unit"));
    line.families.push_back(std::move(family));
  }
  return line;
}

/// Returns the lines of a text without those for sums of histograms, whose numbers go to `sums`.
inline std::string without_sums(const std::string& text, std::vector<double>* sums = nullptr) {
  std::string rest;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at) + 1;
    const std::string line = text.substr(at, end - at);
    const std::size_t name = std::min(line.find('{'), line.find(' '));
    if (line.substr(0, name).ends_with("_sum")) {
      if (sums != nullptr) {
        sums->push_back(std::stod(line.substr(line.rfind(' '))));
      }
    } else {
      rest += line;
    }
    at = end;
  }
  return rest;
}

}  // namespace gradwire::watch

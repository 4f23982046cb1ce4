// Evaluates the expressions of docs/monitoring/alerts.yml without a Prometheus, for the part of PromQL that the rules
// about slow ranks need. tests/systems/prometheus plays the same file with promtool.
#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::test {

using PromLabels = std::map<std::string, std::string>;

/// The state of one series in Prometheus at the time of the query.
struct PromSeries {
  std::string name;
  PromLabels labels;
  double value = 0;
  double rate = 0;  // per second
};

struct PromElement {
  PromLabels labels;
  double value = 0;
};
using PromVector = std::vector<PromElement>;

/// Evaluates one expression. Throws std::runtime_error for unknown syntax.
class PromQuery {
 public:
  PromQuery(std::string_view text, const std::vector<PromSeries>& series) : series_(series) {
    const std::string all(text);
    const std::regex token(R"(\s*([A-Za-z_]\w*|[0-9.]+[a-z]?|==|>=|[-(),\[\]>]))");
    for (std::sregex_iterator match(all.begin(), all.end(), token, std::regex_constants::match_continuous), end;
         match != end; ++match) {
      tokens_.push_back((*match)[1]);
    }
    tokens_.emplace_back();
  }
  [[nodiscard]] PromVector evaluate() {
    PromVector result = either();
    require(peek().empty());
    return result;
  }

 private:
  struct Matching {
    bool is_on = false;  // otherwise all labels
    std::set<std::string> labels;
    bool group_right = false;
  };

  [[nodiscard]] const std::string& peek() const { return tokens_[at_]; }
  std::string next() { return tokens_[at_++]; }
  bool skip(std::string_view token) { return peek() == token && !next().empty(); }
  void require(bool holds) const {
    if (!holds) {
      throw std::runtime_error("PromQuery does not know \"" + peek() + "\", token " + std::to_string(at_));
    }
  }
  void expect(std::string_view token) { require(skip(token)); }

  std::set<std::string> names() {
    std::set<std::string> labels;
    for (expect("("); !skip(")"); skip(",")) {
      labels.insert(next());
    }
    return labels;
  }
  Matching matching() {
    Matching found;
    if (skip("on")) {
      found.is_on = true;
      found.labels = names();
    }
    found.group_right = skip("group_right");
    return found;
  }
  static PromLabels kept(const PromLabels& labels, const Matching& matching) {
    PromLabels result;
    for (const auto& [name, value] : labels) {
      if (!matching.is_on || matching.labels.contains(name)) {
        result[name] = value;
      }
    }
    return result;
  }
  static bool has(const PromVector& all, const PromLabels& labels, const Matching& matching) {
    return std::any_of(all.begin(), all.end(),
                       [&](const PromElement& each) { return kept(each.labels, matching) == kept(labels, matching); });
  }

  PromVector either() {
    PromVector left = both();
    while (skip("or")) {
      for (const PromElement& each : both()) {
        if (!has(left, each.labels, {})) {
          left.push_back(each);
        }
      }
    }
    return left;
  }
  PromVector both() {
    PromVector left = compared();
    while (peek() == "and" || peek() == "unless") {
      const bool wanted = next() == "and";
      const Matching how = matching();
      const PromVector right = compared();
      std::erase_if(left, [&](const PromElement& each) { return has(right, each.labels, how) != wanted; });
    }
    return left;
  }
  PromVector compared() {
    PromVector left = difference();
    while (peek() == "==" || peek() == ">" || peek() == ">=") {
      const std::string sign = next();
      const double bound = number();
      std::erase_if(left, [&](const PromElement& each) {
        return !(sign == "==" ? each.value == bound : sign == ">" ? each.value > bound : each.value >= bound);
      });
    }
    return left;
  }
  // Matches one element of the left side with each of the right one, which keeps its labels.
  PromVector difference() {
    PromVector left = term();
    if (!skip("-")) {
      return left;
    }
    const Matching how = matching();
    require(how.is_on && how.group_right);
    PromVector result;
    for (PromElement each : term()) {
      for (const PromElement& one : left) {
        if (kept(one.labels, how) == kept(each.labels, how)) {
          each.value = one.value - each.value;
          result.push_back(each);
          break;
        }
      }
    }
    return result;
  }
  PromVector term() {
    if (skip("(")) {
      PromVector inner = either();
      expect(")");
      return inner;
    }
    const std::string name = next();
    if (name == "sum" || name == "max" || name == "quantile") {
      return aggregated(name);
    }
    require(name.starts_with("gradwire_") || name == "rate");
    if (name != "rate") {
      return selected(name, &PromSeries::value);
    }
    expect("(");
    const std::string metric = next();
    expect("[");
    next();  // a range, over which the stories change evenly
    expect("]");
    expect(")");
    return selected(metric, &PromSeries::rate);
  }
  PromVector selected(const std::string& name, double PromSeries::*what) const {
    PromVector result;
    for (const PromSeries& each : series_) {
      if (each.name == name) {
        result.push_back({each.labels, each.*what});
      }
    }
    return result;
  }
  PromVector aggregated(const std::string& function) {
    expect("by");
    const Matching by{.is_on = true, .labels = names()};
    expect("(");
    double quantile = 0;
    if (function == "quantile") {
      quantile = number();
      expect(",");
    }
    std::map<PromLabels, std::vector<double>> groups;
    for (const PromElement& each : either()) {
      groups[kept(each.labels, by)].push_back(each.value);
    }
    expect(")");
    PromVector result;
    for (auto& [labels, values] : groups) {
      std::sort(values.begin(), values.end());
      double value = values.back();
      if (function == "sum") {
        value = 0;
        for (const double each : values) {
          value += each;
        }
      } else if (function == "quantile") {
        const double place = quantile * static_cast<double>(values.size() - 1);
        const auto below = static_cast<std::size_t>(place);
        const std::size_t above = std::min(below + 1, values.size() - 1);
        value = values[below] + (values[above] - values[below]) * (place - std::floor(place));
      }
      result.push_back({labels, value});
    }
    return result;
  }
  double number() {
    require(!peek().empty() && std::isdigit(static_cast<unsigned char>(peek()[0])) != 0);
    return std::stod(next());
  }

  const std::vector<PromSeries>& series_;
  std::vector<std::string> tokens_;
  std::size_t at_ = 0;
};

/// Returns the expression of a rule of docs/monitoring/alerts.yml.
inline std::string alert_expression(const std::string& alert) {
  std::ifstream file(std::string(GRADWIRE_SOURCE_DIR) + "/docs/monitoring/alerts.yml");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t rule = text.find("- alert: " + alert + "\n");
  const std::size_t begin = text.find("        expr: ", rule) + std::string_view("        expr: ").size();
  const std::size_t end = text.find("\n        for:", begin);
  if (rule == std::string::npos || end == std::string::npos) {
    throw std::runtime_error("alerts.yml has no alert " + alert);
  }
  const std::string expression = text.substr(begin, end - begin);
  return expression.starts_with(">-") ? expression.substr(2) : expression;
}

/// Returns the series for which an alert fires.
inline PromVector firing(const std::string& alert, const std::vector<PromSeries>& series) {
  return PromQuery(alert_expression(alert), series).evaluate();
}

}  // namespace gradwire::test

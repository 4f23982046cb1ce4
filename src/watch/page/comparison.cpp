// A page that compares two runs: a table of what they did, and their noted numbers by step, by time and by bytes.
#include "watch/page/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "watch/page/charts.hpp"
#include "watch/page/page.hpp"
#include "watch/page/sections.hpp"

namespace gradwire::watch::page {
namespace {

constexpr const char* kNames[] = {"A", "B"};
constexpr const char* kStyles[] = {"first", "second"};

// A name as a part of a JSON pointer.
std::string token(std::string_view name) {
  std::string text;
  for (const char c : name) {
    text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return text;
}

std::set<std::string> notes_of(const Json& root) {
  std::set<std::string> notes;
  for (const Json& report : root.at("runs")) {
    for (const auto& [name, last] : report.at("notes").items()) {
      notes.insert(name);
    }
  }
  return notes;
}

std::string run(std::size_t i) { return "/runs/" + std::to_string(i); }

double value_or_none(const Json& root, const std::string& pointer) {
  const Json::json_pointer at(pointer);
  return root.contains(at) && root.at(at).is_number() ? root.at(at).get<double>()
                                                      : std::numeric_limits<double>::quiet_NaN();
}

std::string command_text(const Json& report) {
  std::string text;
  for (const Json& word : report.at("job").at("command")) {
    text += (text.empty() ? "" : " ") + word.get<std::string>();
  }
  return text;
}

// "drop-in: int8", "drop-in: policy fast.toml" or "drop-in: observing"; empty if none saw a call.
std::string drop_in_of(const Json& report) {
  const Json& calls = report.at("replaced");
  if (calls.empty()) {
    return "";
  }
  const Json& environment = report.at("job").at("environment");
  for (const auto& [name, before] : {std::pair("GRADWIRE_POLICY", "policy "), std::pair("GRADWIRE_CODEC", "")}) {
    if (const std::string value = environment.value(name, ""); !value.empty() && value != "none") {
      return std::string("drop-in: ") + before + value;
    }
  }
  const bool compresses = std::any_of(calls.begin(), calls.end(), [](const Json& row) {
    return row.at("reason").get_ref<const std::string&>().empty();
  });
  return compresses ? "drop-in: compressing" : "drop-in: observing";
}

// "default: int8, two_shot; embed: int4"
std::string codecs_of(const Json& report) {
  std::string text = drop_in_of(report);
  for (const Json& group : report.at("groups")) {
    text += (text.empty() ? "" : "; ") + group.at("name").get<std::string>() + ": " +
            group.at("codec").get<std::string>() + ", " + group.at("algorithm").get<std::string>();
  }
  return text.empty() ? "-" : text;
}

std::string text_row(const Json& root, std::string_view name, const std::function<std::string(const Json&)>& text) {
  std::string html = "<tr><th scope=row>" + with_tooltip(name) + "</th>";
  for (const Json& report : root.at("runs")) {
    html += "<td class=text>" + escaped(text(report)) + "</td>";
  }
  return html + "<td></td></tr>";
}

// A number of both runs, and B's as a multiple of A's. A run that lacks it has "-".
std::string number_row(const Numbers& numbers, std::string_view name, const std::string& pointer, Unit unit) {
  std::string html = "<tr><th scope=row>" + with_tooltip(name) + "</th>";
  double values[2] = {};
  for (std::size_t i = 0; i < 2; ++i) {
    values[i] = value_or_none(numbers.root(), run(i) + pointer);
    html += std::isfinite(values[i]) ? numbers.cell(run(i) + pointer, unit) : "<td class=n>-</td>";
  }
  const double ratio = values[0] != 0 ? values[1] / values[0] : std::numeric_limits<double>::quiet_NaN();
  return html + "<td class=n>" + shown(Unit::factor, ratio) + "</td></tr>";
}

using Values = std::function<std::vector<double>(const Json& curves)>;

std::vector<Charts::Line> lines_of(const Json& root, const Values& xs, const Values& ys) {
  std::vector<Charts::Line> lines;
  for (std::size_t i = 0; i < 2; ++i) {
    const Json& curves = root.at("runs").at(i).at("curves");
    lines.push_back({.label = kNames[i], .style = kStyles[i], .xs = xs(curves), .ys = ys(curves)});
  }
  return lines;
}

Values column(const std::string& pointer) {
  return [pointer](const Json& curves) {
    const Json::json_pointer at(pointer);
    return curves.contains(at) ? values_of(curves.at(at)) : std::vector<double>();
  };
}

std::string charts_of(const Json& root) {
  Charts charts({});
  const Charts::Plane by_step{.x_name = "step", .x = Unit::count, .y = Unit::plain};
  const Charts::Plane by_time{.x_name = "time since the start", .x = Unit::seconds, .y = Unit::plain};
  const Charts::Plane by_bytes{.x_name = "sent by a rank", .x = Unit::bytes, .y = Unit::plain};
  const Values bytes = column("/ranks/sent/median");
  const std::set<std::string> notes = notes_of(root);
  std::string html;
  for (const std::string& name : notes) {
    const Values ys = column("/gauges/" + token(std::string(kNote) + name) + "/median");
    html += charts.lines(name + " by step", "median of the ranks", by_step, lines_of(root, column("/steps"), ys));
    html += charts.lines(name + " by time", "median of the ranks", by_time, lines_of(root, column("/times"), ys));
    html += charts.lines(name + " by bytes", "median of the ranks", by_bytes, lines_of(root, bytes, ys));
  }
  html += charts.lines("Step time", "median of the ranks", {.x_name = "step", .x = Unit::count, .y = Unit::seconds},
                       lines_of(root, column("/steps"), column("/ranks/step/median")));
  html += charts.lines("Bytes sent", "by a rank", {.x_name = by_time.x_name, .x = Unit::seconds, .y = Unit::bytes},
                       lines_of(root, column("/times"), bytes));
  const std::string missing = notes.empty() ? "<p class=soft>Neither run noted a number. A job tells its loss by "
                                              "<code>session.note(\"loss\", x)</code>, and is then compared by it.</p>"
                                            : "";
  return missing + "<div class=grid2>" + html + "</div>\n";
}

}  // namespace

Json comparison(const Json& a, const Json& b) {
  return {{"format", "gradwire report"}, {"version", 1}, {"runs", Json::array({a, b})}};
}

std::vector<std::string> comparison_notes(const Json& root) {
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < 2; ++i) {
    for (const Json& note : root.at("runs").at(i).at("job").at("notes")) {
      notes.push_back(std::string(kNames[i]) + ": " + note.get<std::string>());
    }
  }
  return notes;
}

std::string comparison_html(const Json& root) {
  const Numbers numbers(root);
  std::string rows =
      text_row(root, "command", command_text) +
      text_row(root, "job", [](const Json& r) { return r.at("job").at("name").get<std::string>(); }) +
      text_row(root, "codec", codecs_of) +
      text_row(root, "over", [](const Json& r) { return r.at("job").at("transport").get<std::string>(); }) +
      number_row(numbers, "ranks", "/job/world", Unit::count) +
      number_row(numbers, "steps", "/totals/steps", Unit::count) +
      number_row(numbers, "seconds", "/job/seconds", Unit::seconds);
  bool steps = true;
  for (const Json& report : root.at("runs")) {
    steps = steps && report.at("job").at("has_steps").get<bool>();
  }
  if (steps) {
    rows += number_row(numbers, "a step, mean", "/totals/split/step", Unit::seconds);
  }
  rows += number_row(numbers, "exposed", "/totals/exposed_share", Unit::share) +
          number_row(numbers, "sent", "/totals/bytes_sent", Unit::bytes);
  if (steps) {
    rows += number_row(numbers, "sent by a rank in a step", "/totals/bytes_sent_a_step", Unit::bytes);
  }
  rows += number_row(numbers, "uncompressed", "/totals/bytes_uncompressed", Unit::bytes) +
          number_row(numbers, "ratio", "/totals/ratio", Unit::factor);
  for (const std::string& name : notes_of(root)) {
    rows += number_row(numbers, "last " + name, "/notes/" + token(name), Unit::plain);
  }
  return page_frame("Two runs",
                    "<header><h1>Two runs compared</h1><ul class=key><li><i class=first></i>A <code>" +
                        escaped(command_text(root.at("runs").at(0))) + "</code></li><li><i class=second></i>B <code>" +
                        escaped(command_text(root.at("runs").at(1))) + "</code></li></ul></header>\n<main>" +
                        table("What the runs did", {"", "#A", "#B", "#B over A"}, rows) + charts_of(root) +
                        missing_list(comparison_notes(root), "h2") + "</main>",
                    root.at("runs").at(1).at("job").at("gradwire").get<std::string>());
}

Json write_comparison(const RunPlace& a, const RunPlace& b, const PageFiles& files) {
  refuse_foreign(files);
  const Json first = to_json(summarize(read_job(a.folder, a.job)));
  Json root = comparison(first, to_json(summarize(read_job(b.folder, b.job))));
  write_files(files, root, comparison_html(root));
  return root;
}

}  // namespace gradwire::watch::page

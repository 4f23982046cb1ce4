#include "watch/page/sections.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "watch/page/summary.hpp"

namespace gradwire::watch::page {
namespace {

struct PartName {
  const char* key;
  const char* label;
};
constexpr PartName kStepParts[] = {{"compute", "compute"}, {"exposed", "exposed communication"}};
constexpr PartName kTimeParts[] = {{"compute", "outside communication"}, {"exposed", "inside communication"}};
constexpr PartName kWorkParts[] = {
    {"encode", "encode"}, {"reduce", "sum"}, {"decode", "decode"}, {"native", "native sums"}, {"wait", "wait"}};

std::string percent_of(double share) {
  const double percent = std::round(std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0) * 1e4) / 100;
  std::string text = std::to_string(percent);
  return text.substr(0, text.find('.') + 3) + "%";
}

template <std::size_t Count>
std::string bar(const Numbers& numbers, const PartName (&parts)[Count], double whole, std::string_view label) {
  std::string html = "<div class=bar role=img aria-label=\"" + escaped(label) + "\">";
  std::string key = "<ul class=key>";
  for (const PartName& part : parts) {
    const std::string place = std::string("/totals/split/") + part.key;
    const double value = numbers.value(place);
    if (value <= 0) {
      continue;
    }
    html += std::string("<i class=") + part.key + " style=\"width:" + percent_of(value / whole) + "\"></i>";
    key += std::string("<li><i class=") + part.key + "></i>" + with_tooltip(part.label) + " " +
           numbers.bold(place, Unit::seconds) + " <span class=soft>" + shown(Unit::share, value / whole) +
           "</span></li>";
  }
  return html + "</div>" + key + "</ul>";
}

template <std::size_t Count>
std::vector<Layer> layers_of(const Json& curves, const PartName (&parts)[Count]) {
  std::vector<Layer> layers;
  for (const PartName& part : parts) {
    layers.push_back({.label = part.label, .style = part.key, .values = values_of(curves.at("mean").at(part.key))});
  }
  return layers;
}

bool any(const Json& values) {
  return std::any_of(values.begin(), values.end(), [](const Json& value) { return value.is_number() && value != 0; });
}

std::string card(const std::string& number, std::string_view label, bool bad = false) {
  return std::string("<div class=\"card") + (bad ? " bad" : "") + "\">" + number + "<span>" + std::string(label) +
         "</span></div>";
}

std::string slow_names(const Json& ranks) {
  constexpr std::size_t kMost = 3;
  std::string names;
  std::size_t count = 0;
  for (const Json& rank : ranks) {
    if (rank.at("slow").get<bool>() && ++count <= kMost) {
      names += (count == 1 ? "" : ", ") + rank.at("rank").dump();
    }
  }
  return count == 0
             ? "none"
             : (count == 1 ? "rank " : "") + names + (count > kMost ? " + " + std::to_string(count - kMost) : "");
}

std::string group_row(const Numbers& numbers, std::size_t i, double most) {
  const std::string place = "/groups/" + std::to_string(i) + "/";
  const Json& group = numbers.root().at("groups").at(i);
  const auto text = [&](const char* key) { return escaped(group.at(key).get<std::string>()); };
  const double part = most > 0 ? numbers.value(place + "bytes_sent") / most : 0;
  return "<tr><th scope=row>" + text("name") + "</th><td>" + text("codec") + "</td><td>" + text("algorithm") +
         "</td><td>" + text("sync") + "</td>" + numbers.cell(place + "calls", Unit::count) +
         numbers.cell(place + "bytes_in", Unit::bytes) + numbers.cell(place + "bytes_uncompressed", Unit::bytes) +
         numbers.cell(place + "bytes_sent", Unit::bytes) +
         "<td><span class=meter><i style=\"width:" + percent_of(part) + "\"></i></span></td>" +
         numbers.cell(place + "ratio", Unit::factor) + numbers.cell(place + "encode_seconds", Unit::seconds) +
         numbers.cell(place + "decode_seconds", Unit::seconds) + numbers.cell(place + "wire_seconds", Unit::seconds) +
         "</tr>";
}

}  // namespace

std::string Numbers::tagged(std::string_view tag, const std::string& place, Unit unit) const {
  const std::string name(tag.substr(0, tag.find(' ')));
  return "<" + std::string(tag) + " data-n=\"" + escaped(place) + "\" data-u=" + std::string(mark_of(unit)) + ">" +
         shown(unit, value(place)) + "</" + name + ">";
}

double Numbers::value(const std::string& place) const {
  const Json& value = root_.at(Json::json_pointer(place));
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

std::string table(std::string_view caption, const std::vector<std::string>& head, const std::string& rows) {
  std::string html = "<div class=scroll tabindex=0 role=region aria-label=\"" + escaped(caption) +
                     "\"><table><caption>" + escaped(caption) + "</caption><thead><tr>";
  for (const std::string& column : head) {
    const bool number = column.starts_with('#');
    html += std::string("<th scope=col") + (number ? " class=n>" : ">") + with_tooltip(column.substr(number ? 1 : 0)) +
            "</th>";
  }
  return html + "</tr></thead><tbody>" + rows + "</tbody></table></div>\n";
}

std::string missing_list(const std::vector<std::string>& notes, const std::string& heading) {
  std::string items;
  for (const std::string& note : notes) {
    items += "<li>" + escaped(note) + "</li>";
  }
  return items.empty() ? "" : "<" + heading + ">What is missing</" + heading + "><ul class=notes>" + items + "</ul>";
}

std::string cards(const Numbers& numbers) {
  const Json& root = numbers.root();
  const bool steps = root.at("job").at("has_steps").get<bool>();
  std::string html = "<div class=cards>";
  if (steps) {
    html += card(numbers.bold("/totals/split/step", Unit::seconds), "a step, mean");
    html += card(numbers.bold("/totals/exposed_share", Unit::share),
                 "of a step is " + with_tooltip("exposed communication"));
    html += card(numbers.bold("/totals/wait_share", Unit::share), "of a step ranks wait for messages");
    html += card(numbers.bold("/totals/bytes_sent_a_step", Unit::bytes), "sent by a rank in a step");
  } else {
    html += card(numbers.bold("/totals/exposed_share", Unit::share), "of the time inside communication");
    html += card(numbers.bold("/totals/bytes_sent", Unit::bytes), "sent by all ranks");
  }
  const bool calls = numbers.value("/totals/calls") > 0;
  html += card(numbers.bold("/totals/ratio", Unit::factor),
               "times fewer bytes than " + with_tooltip("uncompressed") + (calls ? ", of all calls" : ""));
  if (calls) {
    html += card(numbers.bold("/totals/compressed_calls", Unit::count),
                 "of " + numbers.plain("/totals/calls", Unit::count) + " calls were compressed");
  }
  if (steps) {
    const std::string slow = slow_names(root.at("ranks"));
    html +=
        card("<b>" + slow + "</b>", slow == "none" ? "no rank is slow" : "slow: others wait for it", slow != "none");
  }
  return html + "</div>\n";
}

Section step_section(const Numbers& numbers, Charts& charts) {
  const Json& root = numbers.root();
  const bool steps = root.at("job").at("has_steps").get<bool>();
  const double whole = numbers.value("/totals/split/step");
  const Json& curves = root.at("curves");
  std::string html = "<div class=panel><h3>" + std::string(steps ? "A step" : "A second") + ", mean of all ranks</h3>" +
                     (steps ? bar(numbers, kStepParts, whole, "compute and exposed communication")
                            : bar(numbers, kTimeParts, whole, "outside and inside communication"));
  html += "<h3>What communication does</h3>" +
          bar(numbers, kWorkParts, whole, "encode, sum, decode, native sums and wait, on the same scale") +
          "<p class=soft>The second bar has the scale of the first. Work of it that runs behind computing is not "
          "exposed. Several threads of a rank add up.</p></div>\n<div class=grid2>";
  html += charts.stacked(std::string(steps ? "A step over time" : "A second over time"), Unit::seconds,
                         layers_of(curves, kStepParts));
  html += charts.stacked("What communication does, over time", Unit::seconds, layers_of(curves, kWorkParts));
  if (steps) {
    html += charts.band("Step time", "median of the ranks, band without the outer tenths", Unit::seconds,
                        curves.at("ranks").at("step"));
    html += charts.band("Exposed share", "of a step", Unit::share, curves.at("ranks").at("exposed_share"));
  }
  return {"step", steps ? "Where a step's time goes" : "Where the time goes", html + "</div>\n"};
}

Section bytes_section(const Numbers& numbers, Charts& charts) {
  const Json& root = numbers.root();
  const Json& groups = root.at("groups");
  std::string rows;
  double most = 0;
  for (const Json& group : groups) {
    most = std::max(most, group.at("bytes_sent").get<double>());
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    rows += group_row(numbers, i, most);
  }
  if (rows.empty() && numbers.value("/totals/bytes_sent") <= 0) {
    return {"bytes", "Bytes", ""};
  }
  std::string html;
  if (!rows.empty()) {
    html += table("Groups of tensors: bytes and times of all ranks, calls of one. All codecs but exact are lossy",
                  {"group", "codec", "algorithm", "sync", "#calls", "#bytes in", "#uncompressed", "#sent",
                   "share of sent", "#ratio", "#encode", "#decode", "#wait"},
                  rows);
  }
  html += "<p>All ranks sent " + numbers.bold("/totals/bytes_sent", Unit::bytes) + " instead of " +
          numbers.bold("/totals/bytes_uncompressed", Unit::bytes) + ".</p><div class=grid2>";
  const Json& ranks = root.at("curves").at("ranks");
  html += charts.band("Ratio", "bytes uncompressed over bytes sent", Unit::factor, ranks.at("ratio"));
  html +=
      charts.band("Sent by a rank",
                  numbers.value("/totals/calls") > 0 ? "bytes a second; of passed calls what a perfect algorithm sends"
                                                     : "bytes a second of the job's time",
                  Unit::rate, ranks.at("sent_rate"));
  return {"bytes", "Bytes", html + "</div>\n"};
}

Section codec_section(const Numbers& numbers, Charts& charts) {
  const Json& root = numbers.root();
  std::vector<Charts::Lane> lanes;
  for (const Json& span : root.at("codecs")) {
    const auto group = span.at("group").get<std::size_t>();
    lanes.resize(std::max(lanes.size(), group + 1));
    lanes[group].parts.push_back(
        {.from = span.at("from"), .to = span.at("to"), .text = span.at("codec").get<std::string>()});
  }
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    lanes[i].label = i < root.at("groups").size() ? root.at("groups").at(i).at("name").get<std::string>() : "";
  }
  std::erase_if(lanes, [](const Charts::Lane& lane) { return lane.parts.empty(); });
  if (lanes.empty()) {
    return {"codecs", "Codecs over time", ""};
  }
  std::string html = charts.lanes("Codec in use, by group", lanes);
  std::string rows;
  for (const Json& each : root.at("switches")) {
    const auto text = [&](const char* key) { return "<td>" + escaped(each.at(key).get<std::string>()) + "</td>"; };
    rows += "<tr><td class=n>" + each.at("step").dump() + "</td>" + text("from") + text("to") + "<td class=n>" +
            each.at("buckets").dump() + "</td><td class=text>" + escaped(each.at("reason").get<std::string>()) +
            "</td></tr>";
  }
  if (!rows.empty()) {
    html += "<h3>Choices of codec = \"auto\"</h3>" +
            table("The last choices, as all ranks made them", {"#step", "from", "to", "#buckets", "reason"}, rows);
  }
  return {"codecs", "Codecs over time", html};
}

namespace {

// Columns and a table of the messages that ranks sent, by their sizes.
std::string messages_html(const Numbers& numbers, Charts& charts) {
  const Json& messages = numbers.root().at("messages");
  std::vector<std::pair<std::string, double>> columns;
  std::string rows;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string place = "/messages/" + std::to_string(i) + "/";
    const bool bounded = messages.at(i).at("up_to").is_number();
    const double rate = numbers.value(place + "rate");
    columns.emplace_back(bounded ? binary_size(numbers.value(place + "up_to")) : "more",
                         std::isfinite(rate) ? rate : 0);
    rows += "<tr><th scope=row class=n>" + (bounded ? "to " + columns.back().first : "more") + "</th>" +
            numbers.cell(place + "count", Unit::count) + numbers.cell(place + "bytes", Unit::bytes) +
            numbers.cell(place + "rate", Unit::bits) + "</tr>";
  }
  if (rows.empty()) {
    return "";
  }
  return "<div class=grid2>" +
         charts.columns("Rate of a message, by its size", "mean of all ranks", Unit::bits, "size, at most", columns) +
         table("Messages of all ranks, by size", {"#size", "#messages", "#sent", "#rate of one"}, rows) + "</div>\n";
}

}  // namespace

Section link_section(const Numbers& numbers, Charts& charts) {
  const Json& ranks = numbers.root().at("curves").at("ranks");
  if (!any(ranks.at("sending_rate").at("median"))) {
    return {"link", "The link", ""};
  }
  return {
      "link", "The link",
      "<p class=soft>A rank's bytes over the time in which a message of it was on its way, which ends when the other "
      "side has taken it. So a rank whose peers come late looks slow here, too.</p><div class=grid2>" +
          charts.band("Rate while sending", "of a rank", Unit::bits, ranks.at("sending_rate")) +
          charts.band("Waiting for messages", "share of the time", Unit::share, ranks.at("wait_share")) +
          "</div>\n<br>" + messages_html(numbers, charts)};
}

Section health_section(const Numbers& numbers, Charts& charts) {
  const Json& curves = numbers.root().at("curves");
  std::string html;
  for (const auto& [name, band] : curves.at("gauges").items()) {
    if (name.starts_with(kNote)) {
      continue;
    }
    const std::size_t blank = name.find(' ');
    std::string title = name.substr(0, blank);
    title = title.starts_with("gradwire_") ? title.substr(9) : title;
    title = title.ends_with("_ratio") ? title.substr(0, title.size() - 6) : title;
    std::replace(title.begin(), title.end(), '_', ' ');
    const Unit unit = name.find("_bytes") != std::string::npos ? Unit::bytes : Unit::plain;
    html += charts.band(title, blank == std::string::npos ? "" : name.substr(blank + 1), unit, band);
  }
  if (any(curves.at("nonfinite_frames"))) {
    html += charts.bars("Frames with NaN or Inf", "of all ranks", Unit::count, curves.at("nonfinite_frames"));
  }
  if (html.empty() && numbers.root().at("groups").empty()) {
    return {"health", "What compression does to the sums",
            "<p class=soft>What a drop-in or a communicator does to sums is not measured.</p>"};
  }
  const std::string counted =
      "<p>Frames with NaN or Inf inside: " + numbers.bold("/totals/nonfinite_frames", Unit::count) + ".</p>";
  if (html.empty()) {
    return {"health", "What compression does to the sums",
            counted +
                "<p class=soft>Errors of the sums were not measured; a session measures them with "
                "<code>measure_error</code>.</p>"};
  }
  return {"health", "What compression does to the sums", counted + "<div class=grid2>" + html + "</div>\n"};
}

Section notes_section(const Numbers& numbers, Charts& charts) {
  const Json& curves = numbers.root().at("curves");
  const bool steps = numbers.root().at("job").at("has_steps").get<bool>();
  const Charts::Plane plane{
      .x_name = steps ? "step" : "time since the start", .x = steps ? Unit::count : Unit::seconds, .y = Unit::plain};
  std::string html;
  for (const auto& [name, last] : numbers.root().at("notes").items()) {
    const Json& band = curves.at("gauges").at(std::string(kNote) + name);
    html += charts.lines(name, "as the job told it, median of the ranks", plane,
                         {{.label = name,
                           .style = "",
                           .xs = values_of(curves.at(steps ? "steps" : "times")),
                           .ys = values_of(band.at("median"))}});
  }
  return {"notes", "What the job noted", html.empty() ? "" : "<div class=grid2>" + html + "</div>\n"};
}

Section replaced_section(const Numbers& numbers, Charts&) {
  const Json& calls = numbers.root().at("replaced");
  std::string rows;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string place = "/replaced/" + std::to_string(i) + "/";
    const Json& row = calls.at(i);
    const std::string reason = row.at("reason").get<std::string>();
    rows += "<tr><th scope=row>" + escaped(row.at("function").get<std::string>()) + "</th><td>" +
            row.at("outcome").get<std::string>() + "</td><td class=text>" + (reason.empty() ? "-" : escaped(reason)) +
            "</td>" + numbers.cell(place + "calls", Unit::count) + numbers.cell(place + "bytes_in", Unit::bytes) +
            numbers.cell(place + "bytes_dense", Unit::bytes) + numbers.cell(place + "bytes_sent", Unit::bytes) +
            numbers.cell(place + "seconds", Unit::seconds) + "</tr>";
  }
  if (rows.empty()) {
    return {"passed", "What was passed on, and why", ""};
  }
  return {"passed", "What was passed on, and why",
          table("Calls of the job that the drop-in saw, of all ranks",
                {"function", "outcome", "passed on because", "#calls", "#bytes in", "#uncompressed", "#sent", "#time"},
                rows)};
}

}  // namespace gradwire::watch::page

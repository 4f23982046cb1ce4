// The numbers of a page as JSON, from which the page reads everything that it shows.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/emulated_link.hpp"
#include "watch/page/summary.hpp"

namespace gradwire::watch::page {
namespace {

using Json = nlohmann::ordered_json;

Json column_json(const Column& column) {
  Json values = Json::array();
  for (const double value : column) {
    values.push_back(std::isfinite(value) ? Json(value) : Json());
  }
  return values;
}

Json band_json(const Band& band) {
  return {{"low", column_json(band.low)}, {"median", column_json(band.median)}, {"high", column_json(band.high)}};
}

Json split_json(const Split& split) {
  return {{"step", split.step},     {"compute", split.compute}, {"exposed", split.exposed}, {"encode", split.encode},
          {"reduce", split.reduce}, {"decode", split.decode},   {"native", split.native},   {"wait", split.wait}};
}

Json known(double value) { return value >= 0 ? Json(value) : Json(); }

Json rank_json(const RankSummary& rank) {
  return {{"rank", rank.rank},
          {"host", rank.host},
          {"state", rank.state},
          {"steps", rank.steps},
          {"split", split_json(rank.split)},
          {"exposed_share", rank.exposed_share},
          {"wait_share", rank.wait_share},
          {"bytes_sent", rank.bytes_sent},
          {"sending_rate", known(rank.sending_rate)},
          {"sending_share", rank.sending_share},
          {"last_arrivals", known(rank.last_arrivals)},
          {"slow", rank.is_slow()},
          {"cause", rank.cause},
          {"slow_share", rank.slow_share},
          {"waited_for", rank.waited_for},
          {"errors", rank.errors},
          {"last_seen", rank.last_seen}};
}

Json group_json(const GroupRow& group) {
  return {{"name", group.name},
          {"codec", group.codec},
          {"algorithm", group.algorithm},
          {"sync", group.sync},
          {"calls", group.calls},
          {"bytes_in", group.bytes_in},
          {"bytes_sent", group.bytes_sent},
          {"bytes_uncompressed", group.bytes_uncompressed},
          {"ratio", group.ratio()},
          {"encode_seconds", group.encode_seconds},
          {"decode_seconds", group.decode_seconds},
          {"wire_seconds", group.wire_seconds},
          {"nonfinite_frames", group.nonfinite_frames}};
}

Json replaced_json(const ReplacedRow& row) {
  return {{"function", row.function},       {"outcome", row.reason.empty() ? "compressed" : "passed"},
          {"reason", row.reason},           {"calls", row.calls},
          {"bytes_in", row.bytes_in},       {"bytes_sent", row.bytes_sent},
          {"bytes_dense", row.bytes_dense}, {"seconds", row.seconds}};
}

Json job_json(const Summary& summary) {
  const std::string link(emulated_link_in(summary.transport));
  return {{"name", summary.job},
          {"command", summary.command},
          {"environment", summary.environment},
          {"gradwire", summary.version},
          {"part", summary.part},
          {"transport", summary.transport},
          {"emulated_link", link.empty() ? Json() : Json(link)},
          {"hosts", summary.hosts},
          {"started", summary.started},
          {"seconds", summary.seconds},
          {"world", summary.world},
          {"ranks_seen", summary.ranks.size()},
          {"has_steps", summary.has_steps},
          {"notes", summary.notes}};
}

Json totals_json(const Summary& summary) {
  return {{"steps", summary.steps},
          {"split", split_json(summary.split)},
          {"exposed_share", summary.exposed_share()},
          {"wait_share", summary.wait_share()},
          {"bytes_sent", summary.bytes_sent},
          {"bytes_uncompressed", summary.bytes_uncompressed},
          {"ratio", summary.ratio()},
          {"calls", summary.calls},
          {"compressed_calls", summary.compressed_calls},
          {"bytes_sent_a_step", summary.bytes_sent_a_step},
          {"nonfinite_frames", summary.nonfinite_frames},
          {"observer_share", summary.observer_share},
          {"pulls", summary.pulls},
          {"pull_seconds", summary.pull_seconds},
          {"pushes", summary.pushes},
          {"push_seconds", summary.push_seconds}};
}

Json curves_json(const Summary& summary) {
  Json curves = {{"times", column_json(summary.times)}, {"steps", column_json(summary.step_numbers)}};
  for (const auto& [name, column] : summary.means) {
    curves["mean"][name] = column_json(column);
  }
  for (const auto& [name, band] : summary.bands) {
    curves["ranks"][name] = band_json(band);
  }
  curves["nonfinite_frames"] = column_json(summary.nonfinite);
  curves["gauges"] = Json::object();
  for (const auto& [name, band] : summary.gauges) {
    curves["gauges"][name] = band_json(band);
  }
  return curves;
}

}  // namespace

Json to_json(const Summary& summary) {
  Json root = {{"format", "gradwire report"}, {"version", 1}, {"job", job_json(summary)}};
  root["totals"] = totals_json(summary);
  root["advice"] = summary.advice;
  for (const char* list : {"groups", "ranks", "replaced", "messages", "codecs", "switches"}) {
    root[list] = Json::array();
  }
  for (const GroupRow& group : summary.groups) {
    root["groups"].push_back(group_json(group));
  }
  for (const RankSummary& rank : summary.ranks) {
    root["ranks"].push_back(rank_json(rank));
  }
  for (const ReplacedRow& row : summary.replaced) {
    root["replaced"].push_back(replaced_json(row));
  }
  for (const MessageRow& row : summary.messages) {
    root["messages"].push_back({{"up_to", std::isfinite(row.up_to) ? Json(row.up_to) : Json()},
                                {"count", row.count},
                                {"bytes", row.bytes},
                                {"seconds", row.seconds},
                                {"rate", known(row.seconds > 0 ? row.bytes / row.seconds : -1)}});
  }
  for (const CodecSpan& span : summary.codecs) {
    root["codecs"].push_back({{"group", span.group}, {"from", span.from}, {"to", span.to}, {"codec", span.codec}});
  }
  for (const CodecSwitch& each : summary.switches) {
    root["switches"].push_back({{"step", each.step},
                                {"from", each.from},
                                {"to", each.to},
                                {"buckets", each.buckets},
                                {"reason", each.reason}});
  }
  root["notes"] = Json::object();
  for (const auto& [name, band] : summary.gauges) {
    if (name.starts_with(kNote)) {
      const auto last =
          std::find_if(band.median.rbegin(), band.median.rend(), [](double v) { return std::isfinite(v); });
      root["notes"][name.substr(kNote.size())] = last == band.median.rend() ? Json() : Json(*last);
    }
  }
  root["curves"] = curves_json(summary);
  return root;
}

}  // namespace gradwire::watch::page

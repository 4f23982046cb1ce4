#include "watch/history.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "gradwire/version.hpp"
#include "watch/json_text.hpp"

namespace gradwire::watch {
namespace {

using observe::EventKind;

constexpr std::size_t kMostCodecs = 256;   // most texts of codec = "auto"
constexpr std::size_t kMostSwitches = 64;  // the last ones are kept

// Gauges that are worth a curve.
constexpr std::array<std::string_view, 7> kGauges{
    "gradwire_relative_error", "gradwire_nmse",          "gradwire_residual", "gradwire_gradient",
    "gradwire_table_age",      "gradwire_device_memory", "gradwire_note"};

double as_number(std::uint64_t value) { return static_cast<double>(value); }

struct ReplacedSums {
  ReplacedCalls compressed;
  ReplacedCalls passed;
};

ReplacedSums sums_of(std::span<const ReplacedCalls> replaced) {
  ReplacedSums sums;
  for (const ReplacedCalls& each : replaced) {
    ReplacedCalls& sum = each.reason.empty() ? sums.compressed : sums.passed;
    sum.calls += each.calls;
    sum.bytes_in += each.bytes_in;
    sum.bytes_sent += each.bytes_sent;
    sum.bytes_dense += each.bytes_dense;
    sum.seconds += each.seconds;
  }
  return sums;
}

// In the order of kHistoryCounters.
std::array<double, kHistoryCounters.size()> counters_of(const RankTotals& rank, const SessionStatistics& sum,
                                                        const ReaderState& reader,
                                                        std::span<const ReplacedCalls> replaced) {
  const ReplacedSums calls = sums_of(replaced);
  const auto seconds = [&](EventKind kind) { return rank.seconds[kind].sum(); };
  return {as_number(sum.steps),
          sum.exposed_seconds,
          as_number(rank.steps.count()),
          rank.steps.sum(),
          as_number(rank.seconds[EventKind::step_end].count()),
          seconds(EventKind::step_end),
          seconds(EventKind::encode),
          seconds(EventKind::reduce),
          seconds(EventKind::decode),
          seconds(EventKind::native),
          seconds(EventKind::wait),
          as_number(rank.sum_of_bytes[EventKind::send]),
          rank.sending_seconds,
          as_number(rank.events[EventKind::pull]),
          seconds(EventKind::pull),
          as_number(rank.events[EventKind::push]),
          seconds(EventKind::push),
          as_number(rank.events[EventKind::error]),
          as_number(sum.switches.size()),
          as_number(calls.compressed.calls),
          as_number(calls.compressed.bytes_in),
          as_number(calls.compressed.bytes_sent),
          as_number(calls.compressed.bytes_dense),
          calls.compressed.seconds,
          as_number(calls.passed.calls),
          as_number(calls.passed.bytes_in),
          calls.passed.seconds,
          reader.cpu_seconds,
          as_number(calls.passed.bytes_sent)};
}

// In the order of kHistoryGroupCounters.
std::array<double, kHistoryGroupCounters.size()> counters_of(const Statistics& totals) {
  return {as_number(totals.calls),
          as_number(totals.bytes_in),
          as_number(totals.bytes_sent),
          as_number(totals.bytes_intra),
          as_number(totals.bytes_inter),
          totals.encode_seconds,
          totals.decode_seconds,
          totals.wire_seconds,
          as_number(totals.nonfinite_frames),
          as_number(totals.bytes_uncompressed)};
}

// The place of a value, which is added where it is new; once there are `most` values, the last place stands for all
// further ones.
std::size_t place_of(std::vector<std::string>& all, const std::string& value, std::size_t most) {
  const auto found = std::find(all.begin(), all.end(), value);
  if (found != all.end()) {
    return static_cast<std::size_t>(found - all.begin());
  }
  if (all.size() < most) {
    all.push_back(value);
  }
  return all.size() - 1;
}

void append_strings(JsonText& json, std::string_view key, std::span<const std::string> values) {
  json.key(key).open('[');
  for (const std::string& value : values) {
    json.string(value);
  }
  json.close(']');
}

void append_replaced(JsonText& json, std::span<const ReplacedCalls> replaced) {
  json.key("replaced").open('[');
  for (const ReplacedCalls& each : replaced) {
    json.open('{').key("function").string(each.function).key("reason").string(each.reason);
    json.key("calls").number(as_number(each.calls)).key("bytes_in").number(as_number(each.bytes_in));
    json.key("bytes_sent").number(as_number(each.bytes_sent)).key("bytes_dense").number(as_number(each.bytes_dense));
    json.key("seconds").number(each.seconds).close('}');
  }
  json.close(']');
}

// The messages that were sent, by ranges of sizes; the last range has no bound.
void append_messages(JsonText& json, std::span<const SentMessages> sent) {
  const Histogram sizes = Histogram::of_bytes();
  json.key("messages").open('[');
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (sent[i].count > 0) {
      const double below = i < Histogram::kBounds ? sizes.bound(i) : std::numeric_limits<double>::quiet_NaN();
      json.open('{').key("up_to").number(below).key("count").number(as_number(sent[i].count));
      json.key("bytes").number(as_number(sent[i].bytes)).key("seconds").number(sent[i].seconds).close('}');
    }
  }
  json.close(']');
}

void append_switches(JsonText& json, std::span<const CodecSwitch> switches) {
  json.key("switches").open('[');
  for (const CodecSwitch& each : switches) {
    json.open('{').key("step").number(as_number(each.step)).key("from").string(each.from).key("to").string(each.to);
    json.key("buckets").number(as_number(each.buckets)).key("reason").string(each.reason).close('}');
  }
  json.close(']');
}

template <typename Samples, typename Value>
void append_column(JsonText& json, std::string_view key, const Samples& samples, Value&& value) {
  json.key(key).open('[');
  for (const auto* sample : samples) {
    json.number(value(*sample));
  }
  json.close(']');
}

}  // namespace

bool History::is_due(double time) const { return samples_.empty() || time >= samples_.back().time + interval_; }

void History::add(double time, const RankTotals& totals, const ReaderState& reader,
                  std::span<const ReplacedCalls> replaced) {
  latest_ = take(time, totals, reader, replaced);
  if (!is_due(time)) {
    return;
  }
  if (samples_.size() == kMostSamples) {  // drops every second sample, but not the first
    for (std::size_t i = 1; 2 * i < samples_.size(); ++i) {
      samples_[i] = std::move(samples_[2 * i]);
    }
    samples_.resize((samples_.size() + 1) / 2);
    interval_ *= 2;
    if (!is_due(time)) {
      return;
    }
  }
  samples_.push_back(latest_);
}

History::Sample History::take(double time, const RankTotals& totals, const ReaderState& reader,
                              std::span<const ReplacedCalls> replaced) {
  const SessionStatistics sum = totals.sum();
  world_size_ = std::max(world_size_, totals.world_size);
  transport_ = sum.transport.empty() ? transport_ : sum.transport;
  replaced_.assign(replaced.begin(), replaced.end());
  const std::size_t some = std::min(sum.switches.size(), kMostSwitches);
  switches_.assign(sum.switches.end() - static_cast<std::ptrdiff_t>(some), sum.switches.end());
  Sample sample{.time = time, .counters = counters_of(totals, sum, reader, replaced)};
  sent_ = totals.sent;
  add_groups(sample, sum, totals);
  add_gauges(sample, families(totals, reader, {}));
  return sample;
}

std::size_t History::group_of(const SessionStatistics::Group& group) {
  const std::string codec = label_of_codec(group.codec);
  const auto find = [this](const std::string& name, const std::string& its) {
    return std::find_if(groups_.begin(), groups_.end(),
                        [&](const Group& each) { return each.name == name && each.codec == its; });
  };
  auto found = find(group.name, codec);
  if (found == groups_.end() && groups_.size() + 1 >= kMostHistoryGroups) {
    found = find("other", "several");
    if (found == groups_.end()) {
      groups_.push_back({.name = "other", .codec = "several", .algorithm = {}, .sync = {}});
      found = groups_.end() - 1;
    }
  }
  if (found == groups_.end()) {
    groups_.push_back({.name = group.name, .codec = codec, .algorithm = group.algorithm, .sync = group.sync});
    found = groups_.end() - 1;
  }
  return static_cast<std::size_t>(found - groups_.begin());
}

void History::add_groups(Sample& sample, const SessionStatistics& sum, const RankTotals& totals) {
  for (const SessionStatistics::Group& group : sum.groups) {
    const std::size_t place = group_of(group);
    if (sample.groups.size() <= place) {
      sample.groups.resize(groups_.size());
    }
    GroupSample& kept = sample.groups[place];
    const auto counters = counters_of(group.totals);
    for (std::size_t i = 0; i < counters.size(); ++i) {
      kept.counters[i] += counters[i];
    }
    const auto warm_up = totals.warm_ups.find({group.name, label_of_codec(group.codec)});
    const std::string in_use = warm_up == totals.warm_ups.end() ? group.codec : warm_up->second + " (warm-up)";
    kept.codec = place_of(codecs_, groups_[place].name == "other" ? "several" : in_use, kMostCodecs);
  }
}

// Adds gauges, and whether others wait for this rank, where a metric says that.
void History::add_gauges(Sample& sample, std::span<const Family> families) {
  sample.gauges.assign(gauges_.size(), kNone);
  for (const Family& family : families) {
    const bool kept = std::any_of(kGauges.begin(), kGauges.end(),
                                  [&](std::string_view prefix) { return family.name.starts_with(prefix); });
    for (const watch::Sample& each : family.samples) {
      if (family.name == "gradwire_rank_slow" && each.value > 0 && !each.labels.empty()) {
        sample.slow = place_of(causes_, each.labels.front().second, kMostGauges);
      } else if (family.name == "gradwire_rank_last_arrivals_ratio") {
        sample.last_arrivals = each.value;
      } else if (kept && family.type == MetricType::gauge) {
        std::string name = family.name;
        for (const auto& [label, value] : each.labels) {
          name += (name == family.name ? " " : ", ") + value;
        }
        const std::size_t place = place_of(gauges_, name, kMostGauges);
        sample.gauges.resize(gauges_.size(), kNone);
        sample.gauges[place] = gauges_[place] == name ? each.value : kNone;
      }
    }
  }
}

void History::append_head(std::string& text, const HistoryHead& head) const {
  JsonText json;
  json.open('{').key("format").string("gradwire history").key("version").number(kHistoryFormat);
  json.key("gradwire").string(kVersion).key("job").string(head.job);
  json.key("part").string(head.part).key("rank").number(head.rank);
  json.key("world").number(world_size_).key("transport").string(transport_).key("host").string(head.host);
  append_strings(json, "command", head.command);
  json.key("environment").open('{');
  for (const auto& [name, value] : head.environment) {
    json.key(name).string(value);
  }
  json.close('}').key("started").number(head.started).key("written").number(head.written);
  json.key("ended").boolean(head.ended).key("interval").number(interval_);
  append_strings(json, "codecs", codecs_);
  append_strings(json, "causes", causes_);
  append_switches(json, switches_);
  append_replaced(json, replaced_);
  append_messages(json, sent_);
  text += json.text();
}

void History::append_groups(std::string& text, std::span<const Sample* const> samples) const {
  JsonText json;
  json.open('[');
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    json.open('{').key("name").string(group.name).key("codec").string(group.codec);
    json.key("algorithm").string(group.algorithm).key("sync").string(group.sync);
    const GroupSample none{};
    const auto of = [g, &none](const Sample& sample) -> const GroupSample& {
      return g < sample.groups.size() ? sample.groups[g] : none;
    };
    append_column(json, "in_use", samples,
                  [&](const Sample& s) { return of(s).codec ? as_number(*of(s).codec) : kNone; });
    for (std::size_t i = 0; i < kHistoryGroupCounters.size(); ++i) {
      append_column(json, kHistoryGroupCounters[i], samples, [&](const Sample& s) { return of(s).counters[i]; });
    }
    json.close('}');
  }
  json.close(']');
  text += json.text();
}

std::string History::to_json(const HistoryHead& head) const {
  std::vector<const Sample*> samples;
  for (const Sample& sample : samples_) {
    samples.push_back(&sample);
  }
  if (!samples_.empty() && latest_.time > samples_.back().time) {
    samples.push_back(&latest_);
  }
  std::string text;
  append_head(text, head);
  text += ",\n\"groups\":";
  append_groups(text, samples);
  JsonText json;
  json.open('{');
  append_column(json, "time", samples, [](const Sample& sample) { return sample.time; });
  for (std::size_t i = 0; i < kHistoryCounters.size(); ++i) {
    append_column(json, kHistoryCounters[i], samples, [i](const Sample& sample) { return sample.counters[i]; });
  }
  append_column(json, "slow", samples, [](const Sample& sample) { return as_number(sample.slow); });
  append_column(json, "last_arrivals", samples, [](const Sample& sample) { return sample.last_arrivals; });
  json.close('}');
  text += ",\n\"samples\":" + json.text();
  JsonText gauges;
  gauges.open('{');
  for (std::size_t i = 0; i < gauges_.size(); ++i) {
    append_column(gauges, gauges_[i], samples,
                  [i](const Sample& sample) { return i < sample.gauges.size() ? sample.gauges[i] : kNone; });
  }
  text += ",\n\"gauges\":" + gauges.close('}').text() + "}\n";
  return text;
}

}  // namespace gradwire::watch

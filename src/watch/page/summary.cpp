#include "watch/page/summary.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/emulated_link.hpp"
#include "watch/page/curves.hpp"

namespace gradwire::watch::page {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kLongestPause = 10;  // most seconds by which a file may be older than the newest; or 5% of the time

// The growth of a rank's counters between two moments.
class Growth {
 public:
  Growth(const RankHistory& rank, double from, double to) : rank_(rank), from_(from), to_(to) {}
  [[nodiscard]] double operator()(std::string_view column) const {
    const auto found = rank_.columns.find(column);
    return found == rank_.columns.end()
               ? 0
               : value_at(rank_.time, found->second, to_) - value_at(rank_.time, found->second, from_);
  }
  /// The sum over groups.
  [[nodiscard]] double of_groups(std::string_view column) const {
    double sum = 0;
    for (const GroupHistory& group : rank_.groups) {
      if (const auto found = group.columns.find(column); found != group.columns.end()) {
        sum += value_at(rank_.time, found->second, to_) - value_at(rank_.time, found->second, from_);
      }
    }
    return sum;
  }
  [[nodiscard]] double seconds() const { return to_ - from_; }

 private:
  const RankHistory& rank_;
  double from_;
  double to_;
};

// Communication of a job without steps: inside calls of a drop-in or of tables, or at work for communicators.
double communication(const Growth& growth) {
  const double calls = growth("compressed_seconds") + growth("passed_seconds");
  const double tables = growth("pull_seconds") + growth("push_seconds");
  const double stages = growth("encode_seconds") + growth("reduce_seconds") + growth("decode_seconds") +
                        growth("native_seconds") + growth("wait_seconds");
  return growth("compressed_calls") + growth("passed_calls") > 0 ? calls : tables > 0 ? tables : stages;
}

// The split of a step; NaN where no step ended.
Split split_of(const Growth& growth, bool has_steps) {
  const double steps = growth("timed_steps");
  const double finishes = growth("finishes");
  const double units = has_steps ? finishes : growth.seconds();
  const double each = units > 0 ? 1 / units : kUnknown;
  Split split;
  split.step = has_steps ? (steps > 0 ? growth("step_seconds") / steps : kUnknown) : 1;
  split.exposed = std::min(split.step, (has_steps ? growth("finish_seconds") : communication(growth)) * each);
  split.compute = split.step - split.exposed;
  split.encode = growth("encode_seconds") * each;
  split.reduce = growth("reduce_seconds") * each;
  split.decode = growth("decode_seconds") * each;
  split.native = growth("native_seconds") * each;
  split.wait = growth("wait_seconds") * each;
  return split;
}

constexpr std::pair<const char*, double Split::*> kParts[] = {
    {"step", &Split::step},     {"compute", &Split::compute}, {"exposed", &Split::exposed}, {"encode", &Split::encode},
    {"reduce", &Split::reduce}, {"decode", &Split::decode},   {"native", &Split::native},   {"wait", &Split::wait}};

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

Split mean_of(const std::vector<RankSummary>& ranks) {
  Split mean;
  for (const auto& [name, part] : kParts) {
    double sum = 0;
    double count = 0;
    for (const RankSummary& rank : ranks) {
      if (std::isfinite(rank.split.*part)) {
        sum += rank.split.*part;
        ++count;
      }
    }
    mean.*part = share(sum, count);
  }
  return mean;
}

// Bytes of a rank's sessions and of the calls that a drop-in saw.
double bytes_of_calls(const RankHistory& rank) {
  double sum = 0;
  for (const GroupHistory& group : rank.groups) {
    if (const auto found = group.columns.find("bytes_sent"); found != group.columns.end() && !found->second.empty()) {
      sum += std::isfinite(found->second.back()) ? found->second.back() : 0;
    }
  }
  for (const ReplacedRow& row : rank.replaced) {
    sum += row.bytes_sent;
  }
  return sum;
}

double bytes_sent_by(const RankHistory& rank) {
  const double sum = bytes_of_calls(rank);
  return sum > 0 ? sum : rank.last("message_bytes");
}

// Sets how long others waited for a rank, as ranks agreed, and the cause of most of that.
void judge(const RankHistory& rank, RankSummary& row) {
  const auto slow = rank.columns.find("slow");
  const auto arrivals = rank.columns.find("last_arrivals");
  if (arrivals != rank.columns.end()) {
    for (const double each : arrivals->second) {
      row.last_arrivals = std::isfinite(each) ? each : row.last_arrivals;
      row.is_judged = row.is_judged || std::isfinite(each);
    }
  }
  if (slow == rank.columns.end()) {
    return;
  }
  std::map<std::string, double> causes;
  for (std::size_t i = 1; i < slow->second.size(); ++i) {
    const double each = slow->second[i];
    if (std::isfinite(each) && each >= 1 && each < static_cast<double>(rank.causes.size())) {
      causes[rank.causes[static_cast<std::size_t>(each)]] += rank.time[i] - rank.time[i - 1];
    }
  }
  double most = 0;
  for (const auto& [cause, seconds] : causes) {
    row.slow_share += share(seconds, rank.time.back());
    row.is_judged = true;
    if (seconds > most) {
      most = seconds;
      row.cause = cause;
    }
  }
}

RankSummary row_of(const RankHistory& rank, bool has_steps) {
  const Growth all(rank, 0, rank.time.back());
  RankSummary row{.rank = rank.rank,
                  .host = rank.host,
                  .state = rank.ended ? "ended" : "running",
                  .steps = rank.last("steps"),
                  .split = split_of(all, has_steps),
                  .bytes_sent = bytes_sent_by(rank),
                  .cause = {},
                  .errors = rank.last("errors"),
                  .last_seen = rank.time.back()};
  for (const auto& [name, part] : kParts) {  // NaN for a rank that saw no step
    row.split.*part = std::isfinite(row.split.*part) ? row.split.*part : 0;
  }
  row.exposed_share = share(row.split.exposed, row.split.step);
  row.wait_share = share(row.split.wait, row.split.step);
  const double sending = rank.last("sending_seconds");
  row.sending_rate = sending > 0 ? rank.last("message_bytes") / sending : -1;
  row.sending_share = share(sending, rank.time.back());
  judge(rank, row);
  return row;
}

void add_group(std::vector<GroupRow>& rows, const GroupHistory& group, bool is_first_rank) {
  auto found = std::find_if(rows.begin(), rows.end(),
                            [&](const GroupRow& row) { return row.name == group.name && row.codec == group.codec; });
  if (found == rows.end()) {
    rows.push_back({.name = group.name, .codec = group.codec, .algorithm = group.algorithm, .sync = group.sync});
    found = rows.end() - 1;
  }
  const auto last = [&](std::string_view column) {
    const auto values = group.columns.find(column);
    return values == group.columns.end() || values->second.empty() || !std::isfinite(values->second.back())
               ? 0
               : values->second.back();
  };
  found->calls += is_first_rank ? last("calls") : 0;
  found->bytes_in += last("bytes_in");
  found->bytes_sent += last("bytes_sent");
  found->bytes_uncompressed += last("bytes_uncompressed");
  found->encode_seconds += last("encode_seconds");
  found->decode_seconds += last("decode_seconds");
  found->wire_seconds += last("wire_seconds");
  found->nonfinite_frames += last("nonfinite_frames");
}

void add_replaced(std::vector<ReplacedRow>& rows, const ReplacedRow& row) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const ReplacedRow& other) {
    return other.function == row.function && other.reason == row.reason;
  });
  if (found == rows.end()) {
    rows.push_back(row);
    return;
  }
  found->calls += row.calls;
  found->bytes_in += row.bytes_in;
  found->bytes_sent += row.bytes_sent;
  found->bytes_dense += row.bytes_dense;
  found->seconds += row.seconds;
}

void add_messages(std::vector<MessageRow>& rows, const MessageRow& row) {
  const auto place =
      std::find_if(rows.begin(), rows.end(), [&](const MessageRow& at) { return at.up_to >= row.up_to; });
  if (place == rows.end() || place->up_to > row.up_to) {
    rows.insert(place, row);
    return;
  }
  place->count += row.count;
  place->bytes += row.bytes;
  place->seconds += row.seconds;
}

void describe(const Job& job, Summary& summary) {
  const RankHistory& first = job.ranks.front();
  summary.job = first.job;
  summary.command = first.command;
  summary.environment = first.environment;
  summary.version = first.version;
  summary.part = first.part;
  summary.started = first.started;
  summary.notes = job.notes;
  std::set<std::string> hosts;
  std::set<std::string> versions;
  std::size_t not_ended = 0;
  for (const RankHistory& rank : job.ranks) {
    not_ended += rank.ended ? 0 : 1;
    hosts.insert(rank.host);
    versions.insert(rank.version);
    summary.world = std::max(summary.world, rank.world);
    summary.started = std::min(summary.started, rank.started);
    summary.seconds = std::max(summary.seconds, rank.time.back());
    summary.steps = std::max(summary.steps, rank.last("steps"));
    summary.has_steps = summary.has_steps || rank.last("timed_steps") > 0;
    summary.transport = summary.transport.empty() ? rank.transport : summary.transport;
    summary.pulls += rank.last("pulls");
    summary.pull_seconds += rank.last("pull_seconds");
    summary.pushes += rank.last("pushes");
    summary.push_seconds += rank.last("push_seconds");
    summary.observer_share = std::max(summary.observer_share, share(rank.last("observer_seconds"), rank.time.back()));
  }
  if (const auto link = summary.environment.find("GRADWIRE_EMULATED_LINK"); link != summary.environment.end()) {
    summary.transport = over_emulated_link(summary.transport, link->second);
  }
  summary.hosts.assign(hosts.begin(), hosts.end());
  if (not_ended > 0) {
    summary.notes.push_back(std::to_string(not_ended) + " of " + std::to_string(job.ranks.size()) +
                            " ranks had not ended when they last wrote: the job runs, or they were killed");
  }
  if (versions.size() > 1) {
    summary.notes.emplace_back("ranks ran different versions of gradwire: " + *versions.begin() + " and " +
                               *versions.rbegin());
  }
}

void add_spans(const RankHistory& rank, Summary& summary) {
  for (std::size_t g = 0; g < rank.groups.size(); ++g) {
    const GroupHistory& group = rank.groups[g];
    for (std::size_t i = 0; i < group.in_use.size(); ++i) {
      const double codec = group.in_use[i];
      if (!(codec >= 0) || codec >= static_cast<double>(rank.codecs.size())) {
        continue;
      }
      const std::string& text = rank.codecs[static_cast<std::size_t>(codec)];
      const double from = i == 0 ? 0 : rank.time[i - 1];
      CodecSpan* const open = summary.codecs.empty() ? nullptr : &summary.codecs.back();
      if (open != nullptr && open->group == g && open->codec == text) {
        open->to = rank.time[i];
      } else {
        summary.codecs.push_back({.group = g, .from = from, .to = rank.time[i], .codec = text});
      }
    }
  }
}

void sum_up(const Job& job, Summary& summary) {
  for (const RankHistory& rank : job.ranks) {
    summary.ranks.push_back(row_of(rank, summary.has_steps));
    if (!rank.ended && summary.seconds - rank.time.back() > std::max(kLongestPause, summary.seconds / 20)) {
      summary.ranks.back().state = "silent";
    }
    for (const GroupHistory& group : rank.groups) {
      add_group(summary.groups, group, &rank == &job.ranks.front());
    }
    for (const ReplacedRow& row : rank.replaced) {
      add_replaced(summary.replaced, row);
      summary.bytes_uncompressed += row.bytes_dense;
      summary.calls += row.calls;
      summary.compressed_calls += row.reason.empty() ? row.calls : 0;
    }
    for (const MessageRow& row : rank.messages) {
      add_messages(summary.messages, row);
    }
    summary.bytes_sent += summary.ranks.back().bytes_sent;
  }
  for (const GroupRow& group : summary.groups) {
    summary.bytes_uncompressed += group.bytes_uncompressed;
    summary.nonfinite_frames += group.nonfinite_frames;
  }
  std::stable_sort(summary.replaced.begin(), summary.replaced.end(),
                   [](const ReplacedRow& a, const ReplacedRow& b) { return a.bytes_in > b.bytes_in; });
  summary.split = mean_of(summary.ranks);
  const auto ranks = static_cast<double>(job.ranks.size());
  summary.bytes_sent_a_step = share(summary.bytes_sent / ranks, summary.has_steps ? summary.steps : summary.seconds);
  summary.switches = job.ranks.front().switches;
}

// Computes all curves, one rank after the other.
void draw_curves(const Job& job, Summary& summary) {
  summary.times = spans_of(job);
  const std::size_t spans = summary.times.size();
  const double slack = summary.times.front() / 2;  // since ranks do not end at the same moment
  std::map<std::string, Gathered> means;
  std::map<std::string, Gathered> bands;
  for (const auto& [name, part] : kParts) {  // also for parts without any value
    means[name].add(spans, 0, kUnknown);
  }
  for (const char* name : {"step", "exposed_share", "wait_share", "sent", "sent_rate", "sending_rate", "ratio"}) {
    bands[name].add(spans, 0, kUnknown);
  }
  summary.nonfinite.assign(spans, 0);
  summary.step_numbers.assign(spans, 0);
  for (const RankHistory& rank : job.ranks) {
    const bool counts_calls = bytes_of_calls(rank) > 0;  // as the total does
    double sent_so_far = 0;
    for (std::size_t i = 0; i < spans && rank.time.back() >= summary.times[i] - slack; ++i) {
      const Growth growth(rank, i == 0 ? 0 : summary.times[i - 1], summary.times[i]);
      const Split split = split_of(growth, summary.has_steps);
      for (const auto& [name, part] : kParts) {
        means[name].add(spans, i, split.*part);
      }
      bands["step"].add(spans, i, split.step);
      bands["exposed_share"].add(spans, i, split.exposed / split.step);
      bands["wait_share"].add(spans, i, split.wait / split.step);
      const double sending = growth("sending_seconds");
      bands["sending_rate"].add(spans, i, sending > 0 ? growth("message_bytes") / sending : kUnknown);
      const double sent =
          growth.of_groups("bytes_sent") + growth("compressed_bytes_sent") + growth("passed_bytes_sent");
      const double dense =
          growth.of_groups("bytes_uncompressed") + growth("compressed_bytes_dense") + growth("passed_bytes_sent");
      bands["ratio"].add(spans, i, sent > 0 ? dense / sent : kUnknown);
      const double all_sent = counts_calls ? sent : growth("message_bytes");
      sent_so_far += all_sent;
      bands["sent"].add(spans, i, sent_so_far);
      bands["sent_rate"].add(spans, i, all_sent / growth.seconds());
      summary.nonfinite[i] += growth.of_groups("nonfinite_frames");
      if (&rank == &job.ranks.front()) {
        summary.step_numbers[i] = std::round(Growth(rank, 0, summary.times[i])("steps"));
      }
    }
  }
  for (auto& [name, gathered] : means) {
    summary.means[name] = gathered.mean();
  }
  for (auto& [name, gathered] : bands) {
    summary.bands[name] = gathered.band();
  }
  summary.gauges = gauges_of(job, summary.times);
}

}  // namespace

Summary summarize(const Job& job) {
  Summary summary;
  describe(job, summary);
  sum_up(job, summary);
  add_spans(job.ranks.front(), summary);
  draw_curves(job, summary);
  find_slow_ranks(summary);
  return summary;
}

}  // namespace gradwire::watch::page

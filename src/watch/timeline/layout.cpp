#include "watch/timeline/layout.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace gradwire::watch::timeline {
namespace {

// Groups of a rank, from top to bottom.
enum class Group : std::uint8_t { steps, buckets, work, sums, sends, receives, others };

std::string_view name_of(Group group) {
  switch (group) {
    case Group::steps: return "steps";
    case Group::buckets: return "buckets";
    case Group::work: return "work";
    case Group::sums: return "native sums";
    case Group::sends: return "sends";
    case Group::receives: return "receives";
    default: return "others";
  }
}

std::string label(const EventSource& stream) {
  constexpr const char* kKinds[] = {"session", "communicator", "table", "drop-in"};
  const auto kind = static_cast<std::size_t>(stream.kind);
  std::string text =
      std::string(kind < std::size(kKinds) ? kKinds[kind] : "source") + " " + std::to_string(stream.number);
  return stream.whole ? text : text + " of " + std::to_string(stream.world_size) + " ranks";
}

/// Lays out the activities of one rank.
class RankLayout {
 public:
  RankLayout(const Recording& recording, std::size_t rank,
             const std::unordered_map<std::uint32_t, std::uint64_t>& flows,
             const std::unordered_map<std::uint32_t, std::int64_t>& sent)
      : recording_(recording), log_(recording.ranks[rank]), rank_(rank), flows_(flows), sent_(sent) {}

  void run(std::vector<Track>& tracks) {
    for (std::uint32_t i = 0; i < log_.activities.size(); ++i) {
      take(log_.activities[i], i);
    }
    for (const auto& [key, begun] : open_buckets_) {
      if (ended_.contains(key)) {
        continue;
      }  // the others belong to a job that hung or was killed
      Activity unfinished = *begun;
      unfinished.end = std::max(unfinished.begin, last_);
      add(unfinished, Group::buckets, {.name = bucket_name(*begun) + ", unfinished", .has_step = true});
    }
    bool several = false;
    for (const auto& [place, slices] : groups_) {
      several = several || place.first != groups_.begin()->first.first;
    }
    for (auto& [place, slices] : groups_) {
      const auto& [stream, group] = place;
      const bool named = several && stream >= 0;
      const std::string name = std::string(name_of(group)) +
                               (named ? ", " + label(recording_.streams[static_cast<std::size_t>(stream)]) : "");
      for (std::vector<Slice>& row : spread(std::move(slices), group == Group::steps)) {
        tracks.push_back({rank_, name, group == Group::receives, std::move(row)});
      }
    }
  }

 private:
  void add(const Activity& a, Group group, Slice slice) {
    slice.begin = a.begin;
    slice.end = a.end;
    slice.bytes = a.bytes;
    slice.step = a.step;
    slice.bucket = a.bucket;
    groups_[{a.stream, group}].push_back(std::move(slice));
  }
  void take(const Activity& a, std::uint32_t index) {
    last_ = std::max(last_, a.end);
    switch (a.kind) {
      case EventKind::step_begin: step_begins_[{a.stream, a.step}] = a.begin; break;
      case EventKind::step_end: end_step(a); break;
      case EventKind::bucket_begin: open_buckets_[{a.stream, a.step, a.bucket}] = &a; break;
      case EventKind::bucket_end:
        ended_.insert({a.stream, a.step, a.bucket});
        add(a, Group::buckets, {.name = bucket_name(a), .has_step = true});
        break;
      case EventKind::encode:
      case EventKind::reduce:
      case EventKind::decode:
      case EventKind::native:
      case EventKind::wait:
        add(a, Group::work, {.name = std::string(to_string(a.kind)), .lane = lane_of(a), .has_step = true});
        break;
      case EventKind::all_reduce:
        add(a, Group::sums, {.name = bucket_name(a), .lane = a.lane, .has_step = true});
        break;
      case EventKind::send:
      case EventKind::receive: add_message(a, index); break;
      default: add(a, Group::others, {.name = std::string(to_string(a.kind))}); break;
    }
  }
  [[nodiscard]] std::string bucket_name(const Activity& a) const {
    const bool call =
        a.stream >= 0 && recording_.streams[static_cast<std::size_t>(a.stream)].kind != observe::Source::Kind::session;
    return call ? "call " + std::to_string(a.step) : "bucket " + std::to_string(a.bucket);
  }
  static std::int32_t lane_of(const Activity& a) { return a.kind == EventKind::wait ? -1 : a.lane; }

  void end_step(const Activity& a) {
    const auto begin = step_begins_.find({a.stream, a.step});
    Activity whole = a;
    whole.begin = begin == step_begins_.end() ? a.begin : std::min(begin->second, a.begin);
    add(whole, Group::steps, {.name = "step " + std::to_string(a.step), .has_step = true});
    add(a, Group::steps, {.name = "finish", .has_step = true});
  }
  void add_message(const Activity& a, std::uint32_t index) {
    const bool sends = a.kind == EventKind::send;
    Activity shown = a;
    if (const auto sent = sent_.find(index); !sends && sent != sent_.end()) {
      shown.begin = std::clamp(sent->second, a.begin, a.end);
    }
    const auto flow = flows_.find(index);
    add(shown, sends ? Group::sends : Group::receives,
        {.name = (sends ? "to rank " : "from rank ") +
                 (a.peer == observe::kNoPeer ? std::string("?") : std::to_string(a.peer)),
         .lane = a.lane,
         .peer = a.peer == observe::kNoPeer ? -1 : a.peer,
         .has_step = true,
         .flow = flow == flows_.end() ? 0 : flow->second});
  }

  const Recording& recording_;
  const RankLog& log_;
  std::size_t rank_;
  const std::unordered_map<std::uint32_t, std::uint64_t>& flows_;
  const std::unordered_map<std::uint32_t, std::int64_t>& sent_;
  std::map<std::pair<std::int32_t, Group>, std::vector<Slice>> groups_;
  std::map<std::pair<std::int32_t, std::uint32_t>, std::int64_t> step_begins_;
  using BucketKey = std::tuple<std::int32_t, std::uint32_t, std::uint32_t>;
  std::map<BucketKey, const Activity*> open_buckets_;
  std::set<BucketKey> ended_;
  std::int64_t last_ = 0;
};

/// The bytes under way, and their rate.
class Links {
 public:
  void take(std::int64_t begin, std::int64_t end, std::uint64_t bytes) {
    changes_[begin] += static_cast<double>(bytes);
    changes_[end] -= static_cast<double>(bytes);
    const std::int64_t last = bin_of(std::max(begin, end - 1));
    // A longer time than any message takes means a clock that could not be compared.
    const std::int64_t first = std::max(bin_of(begin), last - kMostBins);
    for (std::int64_t bin = first; bin <= last; ++bin) {
      const std::int64_t from = std::max(begin, bin * kBin);
      const std::int64_t to = std::min(end, (bin + 1) * kBin);
      const double share = end > begin ? static_cast<double>(to - from) / static_cast<double>(end - begin) : 1;
      bins_[bin] += share * static_cast<double>(bytes);
    }
  }
  void write(std::size_t rank, std::vector<Counter>& counters) const {
    if (changes_.empty()) {
      return;
    }
    Counter queue{rank, "bytes under way", true, {}};
    double now = 0;
    for (const auto& [time, change] : changes_) {
      now += change;
      if (queue.values.empty() || queue.values.back().value != now) {
        queue.values.push_back({time, now});
      }
    }
    Counter rate{rank, "sent, MB/s", false, {}};
    constexpr double kPerSecond = 1e9 / static_cast<double>(kBin) / 1e6;
    for (auto bin = bins_.begin(); bin != bins_.end(); ++bin) {
      rate.values.push_back({bin->first * kBin, bin->second * kPerSecond});
      if (const auto next = std::next(bin); next == bins_.end() || next->first != bin->first + 1) {
        rate.values.push_back({(bin->first + 1) * kBin, 0});
      }
    }
    counters.push_back(std::move(queue));
    counters.push_back(std::move(rate));
  }

 private:
  static constexpr std::int64_t kBin = 1'000'000;  // ns
  static constexpr std::int64_t kMostBins = 60'000;
  static std::int64_t bin_of(std::int64_t time) { return time >= 0 ? time / kBin : (time + 1) / kBin - 1; }

  std::map<std::int64_t, double> changes_;
  std::map<std::int64_t, double> bins_;
};

}  // namespace

std::vector<std::vector<Slice>> spread(std::vector<Slice> slices, bool nests) {
  std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::vector<std::vector<Slice>> rows;
  std::vector<std::vector<std::int64_t>> open;  // by row: the ends of open slices, the outermost first
  for (Slice& slice : slices) {
    std::size_t row = 0;
    for (; row < rows.size(); ++row) {
      std::vector<std::int64_t>& ends = open[row];
      while (!ends.empty() && ends.back() <= slice.begin) {
        ends.pop_back();
      }
      if (ends.empty() || (nests && ends.back() >= slice.end)) {
        break;
      }
    }
    if (row == rows.size()) {
      rows.emplace_back();
      open.emplace_back();
    }
    open[row].push_back(slice.end);
    rows[row].push_back(std::move(slice));
  }
  return rows;
}

Timeline lay_out(const Recording& recording, const Matching& matching) {
  const std::size_t ranks = recording.ranks.size();
  std::vector<std::unordered_map<std::uint32_t, std::uint64_t>> flows(ranks);
  std::vector<std::unordered_map<std::uint32_t, std::int64_t>> sent(ranks);
  std::vector<Links> links(ranks);
  std::uint64_t flow = 0;
  for (const Message& message : matching.messages) {
    const Activity& send = recording.ranks[message.send.rank].activities[message.send.index];
    const Activity& receive = recording.ranks[message.receive.rank].activities[message.receive.index];
    ++flow;
    flows[message.send.rank][message.send.index] = flow;
    flows[message.receive.rank][message.receive.index] = flow;
    sent[message.receive.rank][message.receive.index] = send.begin;
    links[message.send.rank].take(send.begin, std::max(send.begin, receive.end), receive.bytes);
  }
  Timeline timeline;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    RankLayout(recording, rank, flows[rank], sent[rank]).run(timeline.tracks);
    links[rank].write(rank, timeline.counters);
  }
  return timeline;
}

}  // namespace gradwire::watch::timeline

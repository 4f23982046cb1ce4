#include "watch/timeline/summary.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "watch/timeline/bounded.hpp"

namespace gradwire::watch::timeline {
namespace {

constexpr std::size_t kRows = 8;  // rows of a table of shares

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string in_time(std::int64_t nanoseconds) {
  const auto value = static_cast<double>(nanoseconds);
  return value >= 1e9   ? fixed(value / 1e9, 2) + " s"
         : value >= 1e6 ? fixed(value / 1e6, 2) + " ms"
                        : fixed(value / 1e3, 1) + " us";
}

std::string padded(const std::string& text, std::size_t width, bool right = true) {
  const std::string blanks(text.size() < width ? width - text.size() : 0, ' ');
  return right ? blanks + text : text + blanks;
}

std::string what(const Recording& recording, const PathShare& share) {
  const std::string rank = rank_name(recording, share.rank);
  if (share.work == Work::travel) {
    return rank + " -> " + (share.peer < 0 ? std::string("?") : std::to_string(share.peer)) + ": travel";
  }
  return rank + ": " + std::string(to_string(share.work));
}

void write_shares(const Recording& recording, const std::vector<PathShare>& shares, std::size_t steps, bool calls,
                  std::ostream& out) {
  double rest = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const PathShare& each = shares[i];
    if (i >= kRows) {
      rest += each.share;
      continue;
    }
    out << padded(fixed(100 * each.share, 1), 8) << "%"
        << padded(in_time(each.nanoseconds / static_cast<std::int64_t>(steps)), 12) << "  " << what(recording, each);
    if (each.bucket != observe::kNoBucket && !calls) {
      out << ", bucket " << each.bucket;
    }
    out << '\n';
  }
  if (rest > 0) {
    out << padded(fixed(100 * rest, 1), 8) << "%              in " << shares.size() - kRows << " smaller parts\n";
  }
}

void write_clocks(const Read& read, std::ostream& out) {
  const Recording& recording = read.recording;
  if (recording.clocks.size() == 1) {
    out << "clocks: one, all ranks share a host\n";
    return;
  }
  for (std::size_t i = 0; i < recording.ranks.size(); ++i) {
    const RankLog& log = recording.ranks[i];
    const ClockFit& fit = read.alignment.fits[static_cast<std::size_t>(log.clock)];
    out << "clock of " << rank_name(recording, i) << " on " << log.host << ": "
        << (log.clock == 0 ? "the reference"
            : fit.known    ? "within " + in_time(fit.error)
                           : "by the date of its host, since no messages reach it both ways")
        << '\n';
  }
}

void write_what_lacks(const StreamPaths& paths, std::ostream& out) {
  constexpr std::size_t kMostNamed = 4;
  const std::vector<std::uint32_t>& all = paths.truncated_steps;
  if (all.empty()) {
    return;
  }
  std::string numbers = std::to_string(all.front());
  for (std::size_t i = 1; i < std::min(all.size(), kMostNamed); ++i) {
    numbers += ", " + std::to_string(all[i]);
  }
  if (all.size() > kMostNamed) {
    numbers += " and " + std::to_string(all.size() - kMostNamed) + " more";
  }
  const std::string unit = std::string(paths.calls ? "call" : "step") + (all.size() > 1 ? "s " : " ");
  out << "  the begin of " << unit << numbers << " is not in the trace, so " << (all.size() > 1 ? "they are" : "it is")
      << " left out\n";
}

void write_ranks(const Recording& recording, const StreamPaths& paths, const std::vector<PathShare>& shares,
                 std::ostream& out) {
  std::map<std::uint32_t, double> on_path;
  for (const PathShare& share : shares) {
    on_path[share.rank] += share.share;
  }
  const char* const unit = paths.calls ? "a call" : "a step";
  out << "  ranks, " << unit << ":\n";
  out << "    on path      inside        wait      encode      reduce      decode      native\n";
  for (std::uint32_t rank = 0; rank < recording.ranks.size(); ++rank) {
    const RankTimes& times = paths.ranks[rank];
    if (times.steps == 0) {
      continue;
    }
    out << padded(fixed(100 * on_path[rank], 1), 10) << "%";
    for (const std::int64_t each :
         {times.exposed, times.wait, times.encode, times.reduce, times.decode, times.native}) {
      out << padded(in_time(each / times.steps), 12);
    }
    out << "  " << rank_name(recording, rank) << '\n';
  }
  out << "    on path: share of the critical path; inside: time in " << (paths.calls ? "calls" : "finish()")
      << "; wait: for messages, also where computing hides it;\n"
         "    native: sums of the transport's own library\n";
}

std::vector<const StepPath*> pointers(const std::vector<StepPath>& steps) {
  std::vector<const StepPath*> all;
  all.reserve(steps.size());
  for (const StepPath& step : steps) {
    all.push_back(&step);
  }
  return all;
}

nlohmann::ordered_json to_json(const Recording& recording, const std::vector<PathShare>& shares) {
  auto rows = nlohmann::ordered_json::array();
  for (const PathShare& share : shares) {
    nlohmann::ordered_json row{{"rank", recording.ranks[share.rank].rank},
                               {"part", recording.ranks[share.rank].part},
                               {"work", to_string(share.work)},
                               {"seconds", 1e-9 * static_cast<double>(share.nanoseconds)},
                               {"share", share.share}};
    if (share.peer >= 0) {
      row["to_rank"] = share.peer;
    }
    if (share.bucket != observe::kNoBucket) {
      row["bucket"] = share.bucket;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

nlohmann::ordered_json to_json(const Recording& recording, const StepPath& step) {
  return {{"step", step.step},
          {"seconds", 1e-9 * static_cast<double>(step.nanoseconds)},
          {"last_rank", recording.ranks[step.last_rank].rank},
          {"path", to_json(recording, shares_of({&step}, true))}};
}

nlohmann::ordered_json to_json(const Recording& recording, const StreamPaths& paths) {
  const TypicalSteps typical = typical_steps(paths);
  nlohmann::ordered_json out{{"name", stream_name(recording, paths.stream)},
                             {"unit", paths.calls ? "call" : "step"},
                             {"count", paths.steps.size()},
                             {"path", to_json(recording, shares_of(pointers(paths.steps), false))}};
  for (const auto& [name, step] : {std::pair("median", typical.median), std::pair("worst", typical.worst)}) {
    out[name] = step != nullptr ? to_json(recording, *step) : nlohmann::ordered_json(nullptr);
  }
  out["without_begin"] = paths.truncated_steps;
  auto ranks = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < paths.ranks.size(); ++i) {
    const RankTimes& times = paths.ranks[i];
    const auto seconds = [](std::int64_t nanoseconds) { return 1e-9 * static_cast<double>(nanoseconds); };
    ranks.push_back({{"rank", recording.ranks[i].rank},
                     {"part", recording.ranks[i].part},
                     {"steps", times.steps},
                     {"inside_seconds", seconds(times.exposed)},
                     {"wait_seconds", seconds(times.wait)},
                     {"encode_seconds", seconds(times.encode)},
                     {"reduce_seconds", seconds(times.reduce)},
                     {"decode_seconds", seconds(times.decode)},
                     {"native_seconds", seconds(times.native)}});
  }
  out["ranks"] = std::move(ranks);
  auto steps = nlohmann::ordered_json::array();
  for (const StepPath& step : paths.steps) {
    steps.push_back({{"step", step.step}, {"seconds", 1e-9 * static_cast<double>(step.nanoseconds)}});
  }
  out["steps"] = std::move(steps);
  return out;
}

}  // namespace

std::vector<PathShare> shares_of(const std::vector<const StepPath*>& steps, bool by_bucket) {
  std::map<std::tuple<std::uint32_t, std::int32_t, Work, std::uint32_t>, std::int64_t> sums;
  std::int64_t all = 0;
  for (const StepPath* step : steps) {
    for (const Segment& segment : step->path) {
      const std::int64_t took = bounded(segment.end - segment.begin);
      std::int64_t& sum =
          sums[{segment.rank, segment.peer, segment.work, by_bucket ? segment.bucket : observe::kNoBucket}];
      sum = bounded(sum + took);
      all = bounded(all + took);
    }
  }
  std::vector<PathShare> shares;
  for (const auto& [key, took] : sums) {
    const auto& [rank, peer, work, bucket] = key;
    shares.push_back({rank, peer, work, bucket, took,
                      static_cast<double>(took) / static_cast<double>(std::max<std::int64_t>(all, 1))});
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const PathShare& a, const PathShare& b) { return a.nanoseconds > b.nanoseconds; });
  return shares;
}

TypicalSteps typical_steps(const StreamPaths& paths) {
  std::vector<const StepPath*> by_time = pointers(paths.steps);
  std::stable_sort(by_time.begin(), by_time.end(),
                   [](const StepPath* a, const StepPath* b) { return a->nanoseconds < b->nanoseconds; });
  return by_time.empty() ? TypicalSteps{} : TypicalSteps{by_time[(by_time.size() - 1) / 2], by_time.back()};
}

std::string stream_name(const Recording& recording, int stream) {
  const EventSource& one = recording.streams[static_cast<std::size_t>(stream)];
  constexpr const char* kKinds[] = {"session", "communicator", "table", "drop-in"};
  const auto kind = static_cast<std::size_t>(one.kind);
  return std::string(kind < std::size(kKinds) ? kKinds[kind] : "source") + " " + std::to_string(one.number) +
         (one.part == "library" ? "" : " (" + one.part + ")");
}

std::string rank_name(const Recording& recording, std::size_t rank) {
  const RankLog& log = recording.ranks[rank];
  const bool several = std::any_of(recording.ranks.begin(), recording.ranks.end(),
                                   [&](const RankLog& other) { return other.part != log.part; });
  return "rank " + std::to_string(log.rank) + (several ? " (" + log.part + ")" : "");
}

void write_summary(const Read& read, const std::vector<StreamPaths>& paths, std::ostream& out) {
  const Recording& recording = read.recording;
  std::size_t events = 0;
  for (const RankLog& log : recording.ranks) {
    events += log.activities.size();
  }
  out << "trace of " << recording.ranks.size() << " ranks, " << events << " events, " << read.matching.messages.size()
      << " messages  " << read.folder << '\n';
  write_clocks(read, out);
  for (const StreamPaths& stream : paths) {
    const TypicalSteps typical = typical_steps(stream);
    const char* const unit = stream.calls ? "call" : "step";
    const std::vector<PathShare> shares = shares_of(pointers(stream.steps), false);
    out << '\n' << stream_name(recording, stream.stream) << ": " << stream.steps.size() << ' ' << unit << 's';
    if (typical.worst == nullptr) {
      out << '\n';
      write_what_lacks(stream, out);
      continue;
    }
    out << ", median " << in_time(typical.median->nanoseconds) << ", worst " << in_time(typical.worst->nanoseconds)
        << " (" << unit << ' ' << typical.worst->step << ")\n";
    write_what_lacks(stream, out);
    out << "  critical path of all " << unit << "s, a " << unit << ":\n";
    write_shares(recording, shares, stream.steps.size(), stream.calls, out);
    for (const auto& [name, step] : {std::pair("median", typical.median), std::pair("worst", typical.worst)}) {
      out << "  of the " << name << ", " << unit << ' ' << step->step << ", which "
          << rank_name(recording, step->last_rank) << " ended last:\n";
      write_shares(recording, shares_of({step}, true), 1, stream.calls, out);
    }
    write_ranks(recording, stream, shares, out);
  }
}

void write_summary_json(const Read& read, const std::vector<StreamPaths>& paths, std::ostream& out) {
  const Recording& recording = read.recording;
  nlohmann::ordered_json json{{"schema", "gradwire.trace_summary.1"}};
  auto ranks = nlohmann::ordered_json::array();
  for (const RankLog& log : recording.ranks) {
    const ClockFit& fit = read.alignment.fits[static_cast<std::size_t>(log.clock)];
    nlohmann::ordered_json rank{{"rank", log.rank},      {"part", log.part},   {"host", log.host},
                                {"file", log.file},      {"ended", log.ended}, {"events", log.activities.size()},
                                {"dropped", log.dropped}};
    rank["clock_error_seconds"] =
        fit.known ? nlohmann::ordered_json(1e-9 * static_cast<double>(fit.error)) : nlohmann::ordered_json(nullptr);
    ranks.push_back(std::move(rank));
  }
  json["ranks"] = std::move(ranks);
  json["messages"] = read.matching.messages.size();
  json["unmatched"] = read.matching.lonely;
  json["foreign"] = read.matching.foreign;
  json["warnings"] = recording.warnings;
  auto streams = nlohmann::ordered_json::array();
  for (const StreamPaths& stream : paths) {
    streams.push_back(to_json(recording, stream));
  }
  json["streams"] = std::move(streams);
  out << json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
}

}  // namespace gradwire::watch::timeline

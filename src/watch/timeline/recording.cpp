#include "watch/timeline/recording.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/current_error.hpp"
#include "base/text.hpp"
#include "gradwire/error.hpp"
#include "watch/timeline/bounded.hpp"

namespace gradwire::watch::timeline {
namespace {

namespace fs = std::filesystem;
using observe::Event;
using watch::EventFileScale;
using watch::EventFileSource;

constexpr std::int64_t kSecond = 1'000'000'000;

/// The unprocessed content of a file.
struct RawFile {
  std::string name;
  std::string part;
  watch::EventFileHead head;
  std::vector<EventFileSource> sources;
  std::vector<EventFileScale> scales;
  struct Stretch {
    std::uint32_t thread;
    std::vector<Event> events;
  };
  std::vector<Stretch> stretches;
  bool ended = false;

  [[nodiscard]] int world() const {
    int most = 0;
    for (const EventFileSource& source : sources) {
      most = std::max(most, source.world_size);
    }
    return most;
  }
};

// "gradwire-mpi-rank-3.events" has the part "mpi".
std::optional<std::string> part_of(const std::string& name) {
  constexpr std::string_view kBegin = "gradwire-";
  const std::size_t middle = name.rfind("-rank-");
  if (!name.starts_with(kBegin) || !name.ends_with(".events") || middle == std::string::npos ||
      middle <= kBegin.size()) {
    return std::nullopt;
  }
  return name.substr(kBegin.size(), middle - kBegin.size());
}

bool keeps(const StepRange& steps, const Event& event) {
  const bool ends = event.kind == EventKind::step_end || event.kind == EventKind::bucket_end;
  return !watch::has_step(event.kind) || (event.step >= steps.first && event.step <= steps.last) ||
         (steps.end_before && ends && event.step + 1 == steps.first);
}

RawFile read_raw(const fs::path& file, const std::string& part, StepRange steps) {
  RawFile raw;
  raw.name = file.filename().string();
  raw.part = part;
  raw.ended = watch::read_event_file(
      file, {.head = [&](const watch::EventFileHead& head) { raw.head = head; },
             .source = [&](const EventFileSource& source) { raw.sources.push_back(source); },
             .scale =
                 [&](const EventFileScale& scale) {
                   raw.scales.push_back(scale);
                   raw.scales.back().realtime = bounded(scale.realtime);
                   raw.scales.back().monotonic = std::min<std::uint64_t>(scale.monotonic, kFarthest);
                 },
             .events =
                 [&](std::uint32_t thread, std::span<const Event> events) {
                   std::vector<Event> kept;
                   std::copy_if(events.begin(), events.end(), std::back_inserter(kept),
                                [&](const Event& event) { return keeps(steps, event); });
                   raw.stretches.push_back({thread, std::move(kept)});
                 }});
  return raw;
}

std::string in_seconds(std::int64_t nanoseconds) { return std::to_string(nanoseconds / kSecond) + " s"; }

/// Finds the files that belong to one job, and those that are missing.
class Sorting {
 public:
  Sorting(std::vector<RawFile>& files, std::vector<std::string>& warnings) : files_(files), warnings_(warnings) {}

  void leave_out_other_jobs() {
    std::erase_if(files_, [this](const RawFile& file) {
      if (file.scales.empty()) {
        warnings_.push_back(file.name + ": nothing was recorded before it was cut off; left out");
      }
      return file.scales.empty();
    });
    for (const std::string& part : parts()) {
      leave_out_earlier_ones(part);
      if (const auto job = newest_of_the_job(part)) {
        std::erase_if(files_, [&](const RawFile& file) { return file.part == part && is_other(file, *job); });
      }
    }
  }

  void name_what_lacks() {
    for (const std::string& part : parts()) {
      std::set<int> there;
      int world = 0;
      for (const RawFile& file : files_) {
        if (file.part != part) {
          continue;
        }
        world = std::max(world, file.world());
        there.insert(file.head.rank);
        for (const EventFileSource& source : file.sources) {
          if (source.shares_process != 0) {
            there.insert(source.rank);
          }
        }
        name_losses(file);
      }
      if (const text::Missing missing = text::missing(there, world); missing.count > 0) {
        warnings_.push_back("gradwire-" + part + "-rank-N.events is missing of rank " + missing.names +
                            " of a job of " + std::to_string(world) +
                            " ranks; copy the files of all hosts into one directory. What these ranks did is unknown");
      }
    }
  }

 private:
  [[nodiscard]] std::set<std::string> parts() const {
    std::set<std::string> all;
    for (const RawFile& file : files_) {
      all.insert(file.part);
    }
    return all;
  }

  /// The facts of a file that are compared, in a copy, since files change their places in the list.
  struct Facts {
    explicit Facts(const RawFile& file)
        : name(file.name),
          host(file.head.host),
          clock(file.head.monotonic),
          begin(file.scales.front().realtime),
          begin_monotonic(file.scales.front().monotonic),
          took(static_cast<std::int64_t>(file.scales.back().monotonic - file.scales.front().monotonic)),
          world(file.world()),
          ended(file.ended) {}

    std::string name;
    std::string host;
    std::string clock;
    std::int64_t begin;  // date
    std::uint64_t begin_monotonic;
    std::int64_t took;
    int world;
    bool ended;
  };

  // Leaves out earlier jobs. Among files of one clock the order is certain, and the newest file shows the job.
  void leave_out_earlier_ones(const std::string& part) {
    constexpr std::uint64_t kBetween = 2 * kSecond;  // a rank may record its first event so much later
    std::map<std::string, Facts> newest;
    for (const RawFile& file : files_) {
      const std::string clock = file.head.monotonic;
      if (file.part == part && !clock.empty()) {
        const auto [at, fresh] = newest.try_emplace(clock, file);
        if (!fresh && file.scales.front().monotonic > at->second.begin_monotonic) {
          at->second = Facts(file);
        }
      }
    }
    std::erase_if(files_, [&](const RawFile& file) {
      const auto same = newest.find(file.head.monotonic);
      const std::uint64_t ended = file.scales.back().monotonic;
      if (file.part != part || same == newest.end() || ended + kBetween >= same->second.begin_monotonic) {
        return false;
      }
      leave_out(file, "which ended " + in_seconds(static_cast<std::int64_t>(same->second.begin_monotonic - ended)) +
                          " before " + same->second.name + " began");
      return true;
    });
  }

  // The newest file of the clock with the largest share of a job's ranks: a clock that is far ahead has few of them.
  // Among several such clocks the one with the latest date counts.
  [[nodiscard]] std::optional<Facts> newest_of_the_job(const std::string& part) const {
    std::map<std::pair<std::string, int>, int> files;
    for (const RawFile& file : files_) {
      files[{file.head.monotonic, file.world()}] += file.part == part ? 1 : 0;
    }
    const RawFile* newest = nullptr;
    const auto key = [&](const RawFile& file) {
      const int world = file.world();
      const double share = static_cast<double>(files.at({file.head.monotonic, world})) / std::max(world, 1);
      return std::pair(share, file.scales.front().realtime);
    };
    for (const RawFile& file : files_) {
      newest = file.part == part && (newest == nullptr || key(file) > key(*newest)) ? &file : newest;
    }
    return newest == nullptr ? std::nullopt : std::optional<Facts>(*newest);
  }

  void leave_out(const RawFile& file, const std::string& why) {
    warnings_.push_back(file.name + ": is of another job, " + why + "; left out");
  }

  // Whether a file of another clock belongs to another job. A host that was restarted is no longer in the job. Any
  // other host's date may be wrong by any amount: then the duration says more, and messages show how the clocks differ.
  bool is_other(const RawFile& file, const Facts& job) {
    constexpr std::int64_t kDatesDiffer = 2 * kSecond;  // between dates of hosts
    constexpr std::int64_t kLengthsDiffer = 10 * kSecond;
    const Facts facts(file);
    const bool same_clock = facts.clock == job.clock && !facts.clock.empty();
    const std::int64_t before = bounded(job.begin - file.scales.back().realtime);
    if (!same_clock && before > kDatesDiffer) {
      const bool same_host = facts.host == job.host && !facts.host.empty();
      const bool both_ended = facts.ended && job.ended;
      const std::int64_t differ = std::abs(bounded(facts.took) - bounded(job.took));
      if (same_host || (both_ended && differ > kLengthsDiffer + std::min(facts.took, job.took) / 2)) {
        leave_out(file, "which ended " + in_seconds(before) + " before " + job.name + " began");
        return true;
      }
      warnings_.push_back(file.name + ": by the date of its host it ended " + in_seconds(before) + " before " +
                          job.name +
                          " began; it is taken for one of the same job, by a clock that is wrong. Set the clock of " +
                          facts.host + ", or remove the file if it is of another job");
    }
    if (facts.world != job.world && facts.world > 0 && job.world > 0) {
      leave_out(file,
                "of " + std::to_string(facts.world) + " ranks where " + job.name + " has " + std::to_string(job.world));
      return true;
    }
    return false;
  }

  void name_losses(const RawFile& file) {
    if (!file.ended) {
      warnings_.push_back(file.name + ": has no end: the process was killed, still runs, or reached the file's limit");
    }
    if (file.scales.back().dropped > 0) {
      warnings_.push_back(file.name + ": " + std::to_string(file.scales.back().dropped) +
                          " events were lost because a ring was full; what they told is missing");
    }
  }

  std::vector<RawFile>& files_;
  std::vector<std::string>& warnings_;
};

/// Converts files to logs: finds the source and the time of each event.
class Converter {
 public:
  explicit Converter(Recording& recording) : recording_(recording) {}

  void take(RawFile file) {
    TickMap map;
    for (const EventFileScale& scale : file.scales) {
      map.add(scale.scale());
    }
    const int clock = clock_of(file);
    const auto owners = owners_of(file);
    std::map<int, RankLog> logs;
    const auto log_of = [&](int rank) -> RankLog& {
      const auto [at, fresh] = logs.try_emplace(rank);
      if (fresh) {
        at->second = {.part = file.part,
                      .rank = rank,
                      .clock = clock,
                      .host = file.head.host,
                      .file = file.name,
                      .ended = file.ended,
                      .dropped = file.scales.back().dropped,
                      .activities = {}};
      }
      return at->second;
    };
    for (RawFile::Stretch& stretch : file.stretches) {
      for (const Event& event : stretch.events) {
        const auto owner = owners.find(event.source);
        const auto [rank, stream] = owner != owners.end() ? owner->second : std::pair(file.head.rank, -1);
        log_of(rank).activities.push_back({.begin = map.at(event.begin),
                                           .end = map.at(event.begin + event.duration * observe::kTicksOfDuration),
                                           .bytes = event.bytes,
                                           .step = event.step,
                                           .bucket = event.bucket,
                                           .thread = stretch.thread,
                                           .stream = stream,
                                           .kind = event.kind,
                                           .hop = static_cast<std::uint8_t>(event.hop),
                                           .lane = event.lane,
                                           .peer = event.peer});
      }
      stretch.events = {};
    }
    log_of(file.head.rank);  // also for a rank without events
    for (auto& [rank, log] : logs) {
      sort_activities(log.activities);
      recording_.ranks.push_back(std::move(log));
    }
  }

 private:
  int clock_of(const RawFile& file) {
    const std::string name = file.head.monotonic;
    const auto [at, fresh] =
        clocks_.try_emplace(name.empty() ? file.name : name, static_cast<int>(recording_.clocks.size()));
    if (fresh) {
      const EventFileScale& first = file.scales.front();
      recording_.clocks.push_back(
          {file.head.host, bounded(first.realtime - static_cast<std::int64_t>(first.monotonic))});
    }
    return at->second;
  }

  // Sources of a rank by kind and world, in the order in which they were made, which is that of all ranks.
  std::map<std::uint32_t, std::pair<int, int>> owners_of(const RawFile& file) {
    const int world = file.world();
    std::map<std::tuple<int, std::uint32_t, int, bool>, int> made;
    std::map<std::uint32_t, std::pair<int, int>> owners;
    for (const EventFileSource& source : file.sources) {
      const int rank = source.shares_process != 0 ? source.rank : file.head.rank;
      const bool whole = source.world_size == world && source.rank == rank;
      const int number = made[{rank, source.kind, source.world_size, whole}]++;
      owners[source.id] = {rank, stream_of({.part = file.part,
                                            .kind = static_cast<observe::Source::Kind>(source.kind),
                                            .number = number,
                                            .world_size = source.world_size,
                                            .whole = whole})};
    }
    return owners;
  }
  int stream_of(const EventSource& stream) {
    auto& all = recording_.streams;
    const auto [at, fresh] =
        streams_.try_emplace({stream.part, stream.kind, stream.number, stream.world_size, stream.whole}, all.size());
    if (fresh) {
      all.push_back(stream);
    }
    return static_cast<int>(at->second);
  }

  Recording& recording_;
  std::map<std::string, int> clocks_;
  std::map<std::tuple<std::string, observe::Source::Kind, int, int, bool>, std::size_t> streams_;
};

// The same as TimeScale::nanoseconds_at(), but safe for the numbers of a damaged file.
std::int64_t time_at(const observe::TimeScale& scale, std::uint64_t ticks) {
  const auto elapsed = static_cast<double>(static_cast<std::int64_t>(ticks - scale.ticks));
  return bounded(static_cast<std::int64_t>(std::min<std::uint64_t>(scale.nanoseconds, kFarthest)) +
                 to_time(elapsed * scale.nanoseconds_per_tick));
}

}  // namespace

void TickMap::add(const observe::TimeScale& moment) {
  if (moments_.empty() || (moment.ticks > moments_.back().ticks && moment.nanoseconds > moments_.back().nanoseconds)) {
    moments_.push_back(moment);
  }
}

std::int64_t TickMap::at(std::uint64_t ticks) const {
  const auto after = std::upper_bound(moments_.begin(), moments_.end(), ticks,
                                      [](std::uint64_t value, const auto& moment) { return value < moment.ticks; });
  if (after == moments_.begin() || after == moments_.end()) {
    return time_at(after == moments_.begin() ? moments_.front() : moments_.back(), ticks);
  }
  observe::TimeScale line = *std::prev(after);
  line.nanoseconds_per_tick =
      static_cast<double>(after->nanoseconds - line.nanoseconds) / static_cast<double>(after->ticks - line.ticks);
  return time_at(line, ticks);
}

void sort_activities(std::span<Activity> activities) {
  std::stable_sort(activities.begin(), activities.end(), [](const Activity& a, const Activity& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
}

bool is_event_file(const std::string& name) { return part_of(name).has_value(); }

Recording read_recording(const fs::path& folder, StepRange steps) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) {
    throw Error(ErrorCode::invalid_argument, "trace: " + folder.string() + " cannot be read (" + error.message() +
                                                 "); give the directory that the job's GRADWIRE_TRACE names");
  }
  Recording recording;
  recording.first_step = steps.first;
  std::vector<RawFile> files;
  for (const fs::directory_entry& entry : entries) {
    if (const auto part = part_of(entry.path().filename().string())) {
      try {
        files.push_back(read_raw(entry.path(), *part, steps));
      } catch (...) {
        recording.warnings.push_back(std::string(current_error().what()) + "; left out");
      }
    }
  }
  Sorting sorting(files, recording.warnings);
  sorting.leave_out_other_jobs();
  sorting.name_what_lacks();
  if (files.empty()) {
    std::string why;
    for (const std::string& warning : recording.warnings) {
      why += "\n  " + warning;
    }
    throw Error(ErrorCode::invalid_argument,
                "trace: " + folder.string() + " has no events; start the job with GRADWIRE_TRACE=" + folder.string() +
                    " in the environment of all ranks" + why);
  }
  std::sort(files.begin(), files.end(), [](const RawFile& a, const RawFile& b) {
    return std::tie(a.part, a.head.rank, a.name) < std::tie(b.part, b.head.rank, b.name);
  });
  Converter converter(recording);
  for (RawFile& file : files) {
    converter.take(std::move(file));
  }
  return recording;
}

}  // namespace gradwire::watch::timeline

#include "cli/timeline/recording.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/current_error.hpp"
#include "base/text.hpp"
#include "cli/timeline/bounded.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli::timeline {
namespace {

namespace fs = std::filesystem;
using metrics::EventFileScale;
using metrics::EventFileSource;
using observe::Event;

constexpr std::int64_t kSecond = 1'000'000'000;

/// A file as it is.
struct RawFile {
  std::string name;
  std::string part;
  metrics::EventFileHead head;
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
  return !metrics::has_step(event.kind) || (event.step >= steps.first && event.step <= steps.last) ||
         (steps.end_before && ends && event.step + 1 == steps.first);
}

RawFile read_raw(const fs::path& file, const std::string& part, StepRange steps) {
  RawFile raw;
  raw.name = file.filename().string();
  raw.part = part;
  raw.ended = metrics::read_event_file(
      file, {.head = [&](const metrics::EventFileHead& head) { raw.head = head; },
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

/// Which files are of one job, and which lack.
class Sorting {
 public:
  Sorting(std::vector<RawFile>& files, std::vector<std::string>& warnings) : files_(files), warnings_(warnings) {}

  // The newest file says which job it is.
  void leave_out_other_jobs() {
    std::erase_if(files_, [this](const RawFile& file) {
      if (file.scales.empty()) {
        warnings_.push_back(file.name + ": nothing was recorded before it was cut off; left out");
      }
      return file.scales.empty();
    });
    for (const std::string& part : parts()) {
      const RawFile* newest = nullptr;
      for (const RawFile& file : files_) {
        const bool newer = newest == nullptr || file.scales.front().realtime > newest->scales.front().realtime;
        newest = file.part == part && newer ? &file : newest;
      }
      const std::int64_t begin = newest->scales.front().realtime;
      const int world = newest->world();
      const std::string name = newest->name;
      std::erase_if(files_,
                    [&](const RawFile& file) { return file.part == part && is_other(file, begin, world, name); });
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

  bool is_other(const RawFile& file, std::int64_t begin, int world, const std::string& newest) {
    constexpr std::int64_t kDatesDiffer = 2 * kSecond;  // of hosts
    const std::int64_t ended = file.scales.back().realtime;
    if (ended + kDatesDiffer < begin) {
      warnings_.push_back(file.name + ": is of another job, which ended " + in_seconds(begin - ended) + " before " +
                          newest + " began; left out");
      return true;
    }
    if (file.world() != world && file.world() > 0 && world > 0) {
      warnings_.push_back(file.name + ": is of another job, of " + std::to_string(file.world()) + " ranks where " +
                          newest + " has " + std::to_string(world) + "; left out");
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

/// Makes logs of files: whose events they are, and when.
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
    log_of(file.head.rank);  // also where it recorded nothing
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
  int stream_of(const Stream& stream) {
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

// As TimeScale::nanoseconds_at(), also of what a damaged file says.
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

}  // namespace gradwire::cli::timeline

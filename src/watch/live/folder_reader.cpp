#include "watch/live/folder_reader.hpp"

#include <chrono>
#include <exception>
#include <set>
#include <system_error>

#include "base/read_file.hpp"
#include "gradwire/error.hpp"
#include "watch/live/fetch.hpp"
#include "watch/textfile.hpp"

namespace gradwire::watch::live {
namespace {

constexpr std::size_t kMostBytes = 16 << 20;  // a hundred times a file of 64 groups

double seconds_of(std::filesystem::file_time_type time) {
  return std::chrono::duration<double>(std::chrono::file_clock::to_sys(time).time_since_epoch()).count();
}

}  // namespace

// The job may replace the file between two calls on it, which then see two versions.
FolderReader::Known FolderReader::read_one(const std::filesystem::path& file) const {
  constexpr int kTries = 3;
  Known known;
  std::error_code ignored;
  for (int i = 0; i < kTries; ++i) {
    known.written = std::filesystem::last_write_time(file, ignored);
    known.reason.clear();
    try {
      known.values = rank_values(parse_metrics(read_file(file, kMostBytes, "metrics")), seconds_of(known.written));
    } catch (const std::exception& error) {
      known.reason = error.what();
    }
    if (std::filesystem::last_write_time(file, ignored) == known.written) {
      break;
    }
  }
  return known;
}

// The newest file of a part of a job says how many ranks there are. Files of one job are written every 5 s; a file says
// 1 as long as the drop-in was not used on its rank.
void FolderReader::leave_out_earlier(FolderSnapshot& snapshot) {
  constexpr double kOneTurn = 6;                                     // seconds
  std::map<std::pair<std::string, std::string>, RankValues> newest;  // by job and part
  for (const RankValues& rank : snapshot.ranks) {
    const auto [at, first] = newest.emplace(std::pair(rank.job, rank.name.first), rank);
    if (!first && rank.written > at->second.written) {
      at->second = rank;
    }
  }
  std::erase_if(snapshot.ranks, [&](const RankValues& rank) {
    const RankValues& now = newest.at({rank.job, rank.name.first});
    const bool earlier = rank.name.second >= now.world_size && rank.world_size != now.world_size &&
                         rank.written + kOneTurn < now.written;
    if (earlier) {
      snapshot.skipped.push_back({"rank " + std::to_string(rank.name.second) + " (" + rank.name.first + ")",
                                  "an earlier job of " + std::to_string(rank.world_size) +
                                      " ranks left it; this one has " + std::to_string(now.world_size)});
    }
    return earlier;
  });
}

FolderSnapshot FolderReader::read() {
  FolderSnapshot snapshot;
  std::error_code problem;
  std::set<std::string> names;
  std::set<std::string> sockets;
  snapshot.time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (std::filesystem::directory_iterator entry(folder_, problem), end; !problem && entry != end;
       entry.increment(problem)) {
    if (const std::string name = entry->path().filename().string(); is_rank_file(name, ".prom")) {
      names.insert(name);
    } else if (is_rank_file(name, ".sock")) {
      sockets.insert(name);
    }
  }
  std::erase_if(known_, [&](const auto& entry) { return !names.contains(entry.first); });
  for (const std::string& name : sockets) {
    ask(name, snapshot);
  }
  std::set<std::pair<std::string, RankName>> answered;
  for (const RankValues& values : snapshot.ranks) {
    answered.emplace(values.job, values.name);
  }
  std::map<std::pair<std::string, RankName>, std::string> taken;
  for (const std::string& name : names) {
    const std::filesystem::path file = folder_ / name;
    std::error_code gone;
    const auto written = std::filesystem::last_write_time(file, gone);
    auto known = known_.find(name);
    if (known == known_.end() || gone || known->second.written != written) {
      known = known_.insert_or_assign(name, read_one(file)).first;
    }
    std::string reason = known->second.reason;
    if (reason.empty() && answered.contains({known->second.values.job, known->second.values.name})) {
      continue;  // the answer is newer than the file
    }
    if (reason.empty()) {
      const auto [other, first] = taken.emplace(std::pair(known->second.values.job, known->second.values.name), name);
      reason = first ? "" : "it says that it is of the same rank as " + other->second;
    }
    if (reason.empty()) {
      snapshot.ranks.push_back(known->second.values);
    } else {
      snapshot.skipped.push_back({name, reason});
    }
  }
  leave_out_earlier(snapshot);
  if (names.empty() && sockets.empty()) {
    snapshot.problem = explain_empty_folder();
  }
  return snapshot;
}

void FolderReader::ask(const std::string& name, FolderSnapshot& snapshot) const {
  try {
    for (RankValues& values : ranks_in(fetch(folder_ / name), snapshot.time)) {
      snapshot.ranks.push_back(std::move(values));
    }
  } catch (const std::exception& error) {
    snapshot.skipped.push_back({name, error.what()});
  }
}

std::string FolderReader::explain_empty_folder() const {
  std::error_code problem;
  const std::filesystem::file_status status = std::filesystem::status(folder_, problem);
  const std::string folder = std::filesystem::absolute(folder_, problem).lexically_normal().string();
  const std::string fix = "start the job with GRADWIRE_METRICS=file:" + folder + " in the environment of every rank";
  if (status.type() == std::filesystem::file_type::not_found) {
    return folder + " is not there; name the directory of the job's GRADWIRE_METRICS, or " + fix;
  }
  if (status.type() != std::filesystem::file_type::directory) {
    return folder + " is no directory; name the directory of the job's GRADWIRE_METRICS";
  }
  const std::filesystem::directory_iterator first(folder_, problem);
  if (problem) {
    return folder + " cannot be read (" + problem.message() + "); start gradwire top as a user who may read it";
  }
  return "no rank has written its metrics to " + folder + " yet; " + fix +
         " (a file comes within a second of a rank's first session or collective)";
}

}  // namespace gradwire::watch::live

#include "watch/page/histories.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include "base/read_file.hpp"
#include "base/text.hpp"
#include "gradwire/error.hpp"
#include "watch/page/curves.hpp"
#include "watch/textfile.hpp"

namespace gradwire::watch::page {
namespace {

constexpr std::size_t kMostBytes = 64 << 20;  // twenty times a history of 16 groups and 512 samples
constexpr double kClocksDiffer = 5;           // seconds between clocks of hosts

// Whether `a` says more than `b`, if a rank has a history by the library and one by a drop-in: about steps, then calls.
bool tells_more(const RankHistory& a, const RankHistory& b) {
  const auto weight = [](const RankHistory& h) {
    return std::pair(h.last("timed_steps"), h.last("compressed_calls") + h.last("passed_calls"));
  };
  return weight(a) > weight(b);
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() > kMost ? text + " and " + std::to_string(names.size() - kMost) + " more" : text;
}

void note_missing(Job& job) {
  int world = 1;
  std::set<int> there;
  for (const RankHistory& rank : job.ranks) {
    world = std::max(world, rank.world);
    there.insert(rank.rank);
  }
  if (const text::Missing missing = text::missing(there, world); missing.count > 0) {
    job.notes.push_back((missing.count == 1 ? "rank " : "ranks ") + missing.names + " of " + std::to_string(world) +
                        " left no history here: started without GRADWIRE_REPORT, or on a host that does not share "
                        "this directory");
  }
}

/// Adds what a rank's other history says of the calls that a drop-in saw: the rows, and the bytes over time.
void add_calls(RankHistory& to, const RankHistory& from) {
  to.replaced.insert(to.replaced.end(), from.replaced.begin(), from.replaced.end());
  for (const char* name : {"compressed_bytes_sent", "compressed_bytes_dense", "passed_bytes_sent"}) {
    const auto added = from.columns.find(name);
    if (added == from.columns.end() || from.time.empty()) {
      continue;
    }
    const double ahead = to.started - from.started;  // each history counts from its own begin
    Column& column = to.columns[name];
    column.resize(to.time.size());
    for (std::size_t i = 0; i < column.size(); ++i) {  // both end with the process
      column[i] += i + 1 < column.size() ? value_at(from.time, added->second, std::max(0.0, to.time[i] + ahead))
                                         : from.last(name);
    }
  }
}

/// Whether the ranks ran at the same time, as those of one job do. `last` is the last one to start.
bool runs_with(const RankHistory& history, const RankHistory& last) {
  const double tolerance = history.world == last.world ? kClocksDiffer : 0;  // another size means another job anyway
  return history.started <= last.started && std::max(history.written, history.started) + tolerance >= last.started;
}

// The file by which others may join the rank's job, or by which the rank joined; empty: neither.
std::string join_file_of(const RankHistory& history) {
  for (const char* name : {"GRADWIRE_LET_JOIN", "GRADWIRE_JOIN"}) {
    if (const auto found = history.environment.find(name); found != history.environment.end()) {
      return std::filesystem::path(found->second).filename().string();
    }
  }
  return "";
}

/// The histories of the newest job that others may join, by file name. In such a job processes come and go: each runs
/// at the same time as another one of the job.
std::set<std::string> come_and_go_with_newest(const std::vector<RankHistory>& histories) {
  const auto newest = std::max_element(histories.begin(), histories.end(), [](const auto& a, const auto& b) {
    return std::max(a.written, a.started) < std::max(b.written, b.started);
  });
  const std::string join_file = join_file_of(*newest);
  std::set<std::string> files;
  double began = newest->started;
  for (bool more = !join_file.empty(); more;) {
    more = false;
    for (const RankHistory& one : histories) {
      if (join_file_of(one) == join_file && std::max(one.written, one.started) + kClocksDiffer >= began &&
          files.insert(one.file).second) {
        began = std::min(began, one.started);
        more = true;
      }
    }
  }
  return files;
}

/// The last rank to start of the job with the largest share of its ranks here; among equal ones of the newest. A host
/// whose clock is far ahead looks like a job of its own with few ranks, and so do files that a later job of fewer ranks
/// left in place. `histories` are in the order of ranks.
const RankHistory& last_to_start(const std::vector<RankHistory>& histories) {
  std::pair<double, double> best{-1, 0};
  const RankHistory* last = &histories.front();
  std::set<std::pair<double, int>> tried;
  for (const RankHistory& one : histories) {
    if (!tried.emplace(one.started, one.world).second) {
      continue;
    }
    int ranks = 0;
    int previous = -1;
    int world = 1;
    for (const RankHistory& other : histories) {
      if (runs_with(other, one)) {
        ranks += other.rank != previous ? 1 : 0;
        previous = other.rank;
        world = std::max({world, other.world, other.rank + 1});  // a drop-in that does not know its world has 1
      }
    }
    const std::pair here(static_cast<double>(ranks) / world, one.started);
    if (here > best) {
      best = here;
      last = &one;
    }
  }
  return *last;
}

/// Whether a history differs from the job only by its host's date, which may be wrong by any amount: it has the same
/// command and duration, and the job has nothing of that rank or host.
bool only_the_date_differs(const RankHistory& history, const Job& job, const RankHistory& last) {
  constexpr double kLengthsDiffer = 10;
  const auto length = [](const RankHistory& one) { return one.written - one.started; };
  const double shorter = std::min(length(history), length(last));
  const bool as_long = std::abs(length(history) - length(last)) <= kLengthsDiffer + shorter / 2;
  return history.ended && last.ended && as_long && history.world == last.world && history.command == last.command &&
         std::none_of(job.ranks.begin(), job.ranks.end(),
                      [&](const RankHistory& one) { return one.rank == history.rank || one.host == history.host; });
}

/// Moves those histories of `left_out` into the job that differ only by their date; they begin when the others began.
void take_in_wrong_dates(std::vector<RankHistory>& left_out, Job& job, const RankHistory& last) {
  std::vector<RankHistory> taken;
  std::erase_if(left_out, [&](RankHistory& history) {
    if (!only_the_date_differs(history, job, last)) {
      return false;
    }
    const double ahead = history.started - last.started;
    job.notes.push_back(history.file + ": the date of its host, " + history.host + ", is " +
                        std::to_string(std::llround(std::abs(ahead))) + " s " + (ahead > 0 ? "ahead" : "behind") +
                        "; taken for one of the same job. Set that clock, or remove the file if it is of another job");
    history.started -= ahead;
    history.written -= ahead;
    taken.push_back(std::move(history));
    return true;
  });
  std::move(taken.begin(), taken.end(), std::back_inserter(job.ranks));
  std::stable_sort(job.ranks.begin(), job.ranks.end(),
                   [](const RankHistory& a, const RankHistory& b) { return a.rank < b.rank; });
}

// Histories without a name count as of one job, which the rules above take apart.
void leave_out_other_jobs(std::vector<RankHistory>& histories, const std::optional<std::string>& named,
                          const std::string& folder, std::vector<std::string>& notes) {
  std::map<std::string, double> jobs;  // when the last rank began
  for (const RankHistory& history : histories) {
    const auto [job, first] = jobs.emplace(history.job, history.started);
    job->second = std::max(job->second, history.started);
  }
  const auto newest =
      std::max_element(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const std::string wanted = named.value_or(newest->first);
  std::vector<std::string> others;
  for (const auto& [job, began] : jobs) {
    if (job != wanted) {
      others.push_back(job.empty() ? "one without a name" : job);
    }
  }
  if (!jobs.contains(wanted)) {
    throw Error(ErrorCode::invalid_argument,
                folder + " holds no history of the job " + wanted + ", but of " + listed(others));
  }
  if (!others.empty()) {
    notes.push_back("left out: histories of " +
                    (others.size() == 1 ? "another job, " : std::to_string(others.size()) + " other jobs, ") +
                    listed(others) + "; --job NAME makes a page of one of them");
  }
  std::erase_if(histories, [&](const RankHistory& history) { return history.job != wanted; });
}

}  // namespace

double RankHistory::last(std::string_view column) const {
  const auto found = columns.find(column);
  return found == columns.end() || found->second.empty() || std::isnan(found->second.back()) ? 0 : found->second.back();
}

Job newest_job(std::vector<RankHistory> histories, std::vector<std::string> notes, const std::string& folder,
               const std::optional<std::string>& named) {
  if (histories.empty()) {
    throw Error(ErrorCode::invalid_argument,
                folder + " holds no history of a rank; start the job with GRADWIRE_REPORT=" + folder +
                    ", or by gradwire run --report " + folder + (notes.empty() ? "" : "; " + listed(notes)));
  }
  Job job{.ranks = {}, .notes = std::move(notes)};
  leave_out_other_jobs(histories, named, folder, job.notes);
  std::vector<RankHistory> left_out;
  std::sort(histories.begin(), histories.end(), [](const RankHistory& a, const RankHistory& b) {
    return std::pair(a.rank, a.file) < std::pair(b.rank, b.file);
  });
  const RankHistory last = last_to_start(histories);
  const std::set<std::string> come_and_go = come_and_go_with_newest(histories);
  for (RankHistory& history : histories) {
    const bool belongs = come_and_go.empty() ? runs_with(history, last) : come_and_go.contains(history.file);
    if (!belongs) {
      left_out.push_back(std::move(history));
    } else if (job.ranks.empty() || job.ranks.back().rank != history.rank) {
      job.ranks.push_back(std::move(history));
    } else {
      RankHistory& kept = job.ranks.back();
      if (tells_more(history, kept)) {
        std::swap(kept, history);
      }
      add_calls(kept, history);
    }
  }
  if (come_and_go.empty()) {
    take_in_wrong_dates(left_out, job, last);
  }
  std::vector<std::string> earlier;
  std::vector<std::string> later;
  for (const RankHistory& history : left_out) {
    (history.started > last.started ? later : earlier).push_back(history.file);
  }
  const auto it = [](const std::vector<std::string>& files) { return std::string(files.size() == 1 ? "it" : "them"); };
  if (!earlier.empty()) {
    job.notes.push_back("left out, since an earlier job wrote " + it(earlier) + ": " + listed(earlier));
  }
  if (!later.empty()) {
    job.notes.push_back("left out, since another job wrote " + it(later) +
                        " later, or a host whose clock is ahead: " + listed(later));
  }
  note_missing(job);
  return job;
}

Job read_job(const std::filesystem::path& folder, const std::optional<std::string>& named) {
  std::error_code problem;
  const std::string name = folder.string();
  if (!std::filesystem::is_directory(folder, problem)) {
    throw Error(ErrorCode::invalid_argument,
                name + (std::filesystem::exists(folder, problem) ? " is no directory" : " is not there") +
                    "; name the directory that GRADWIRE_REPORT named for the job");
  }
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator entry(folder, problem), end; !problem && entry != end;
       entry.increment(problem)) {
    if (const std::string file = entry->path().filename().string(); is_rank_file(file, ".history")) {
      names.push_back(file);
    }
  }
  if (problem) {
    throw Error(ErrorCode::invalid_argument, name + " cannot be read: " + problem.message());
  }
  std::sort(names.begin(), names.end());
  std::vector<RankHistory> histories;
  std::vector<std::string> notes;
  for (const std::string& file : names) {
    try {
      histories.push_back(parse_history(read_file(folder / file, kMostBytes, "history"), file));
    } catch (const Error& error) {
      notes.emplace_back(error.what());
    }
  }
  return newest_job(std::move(histories), std::move(notes), name, named);
}

}  // namespace gradwire::watch::page

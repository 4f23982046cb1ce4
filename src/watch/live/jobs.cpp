// Which of the jobs whose files lie in one folder is shown.
#include <algorithm>
#include <map>
#include <utility>

#include "watch/live/view.hpp"

namespace gradwire::watch::live {
namespace {

using When = std::pair<bool, double>;  // whether a rank runs, and when the last file was written

std::map<std::string, When> jobs_of(const FolderSnapshot& snapshot) {
  std::map<std::string, When> jobs;
  for (const RankValues& rank : snapshot.ranks) {
    When& job = jobs[rank.job];
    job.first = job.first || (!rank.ended && snapshot.time - rank.written <= kSilentSeconds);
    job.second = std::max(job.second, rank.written);
  }
  return jobs;
}

std::string chosen(const std::map<std::string, When>& jobs, const std::optional<std::string>& shown) {
  const auto newest =
      std::max_element(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto before = shown ? jobs.find(*shown) : jobs.end();
  return before != jobs.end() && (before->second.first || !newest->second.first) ? *shown : newest->first;
}

}  // namespace

void choose_job(FolderSnapshot& snapshot, const std::optional<std::string>& named,
                const std::optional<std::string>& shown) {
  const std::map<std::string, When> jobs = jobs_of(snapshot);
  if (jobs.empty()) {
    return;
  }
  snapshot.job = named ? *named : chosen(jobs, shown);
  std::erase_if(snapshot.ranks, [&](const RankValues& rank) { return rank.job != snapshot.job; });
  for (const auto& [job, when] : jobs) {
    if (job != snapshot.job) {
      snapshot.other_jobs.push_back({job, when.first});
    }
  }
  if (snapshot.ranks.empty()) {
    snapshot.problem = "no rank of the job " + snapshot.job + " has written its metrics here";
  }
}

std::string next_job(const FolderSnapshot& snapshot) {
  if (snapshot.other_jobs.empty()) {
    return snapshot.job;
  }
  const auto after = std::find_if(snapshot.other_jobs.begin(), snapshot.other_jobs.end(),
                                  [&](const OtherJob& other) { return other.name > snapshot.job; });
  return after == snapshot.other_jobs.end() ? snapshot.other_jobs.front().name : after->name;
}

}  // namespace gradwire::watch::live

#include "base/job_name.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "base/environment.hpp"
#include "base/mpi_job.hpp"
#include "base/mutex.hpp"
#include "base/start_directory.hpp"
#include "base/text.hpp"

namespace gradwire {
namespace {

// "host-20260131-235959-4711", with the time of the first call in this process.
std::string name_of_process() {
  struct Named {
    Mutex mutex;
    pid_t process GUARDED_BY(mutex) = 0;
    std::string name GUARDED_BY(mutex);
  };
  static auto& named = *new Named;  // never destroyed: the end of a process may ask
  const MutexLock lock(named.mutex);
  if (named.process != ::getpid()) {  // a forked child has a name of its own
    named.process = ::getpid();
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    std::array<char, 32> time{};
    if (::gmtime_r(&now, &parts) == nullptr || std::strftime(time.data(), time.size(), "%Y%m%d-%H%M%S", &parts) == 0) {
      time = {};
    }
    const std::string_view whole = host.data();
    named.name = std::string(whole.substr(0, whole.find('.'))) + "-" + time.data() + "-" + std::to_string(::getpid());
  }
  return named.name;
}

// A job that others join by a file; the claim on the file lets only one job have it at a time.
std::string name_by_join_file(const std::string& file) {
  const std::string path = std::filesystem::path(from_start_directory(file)).lexically_normal().string();
  return std::filesystem::path(path).stem().string() + "-" + text::short_hash(path);
}

std::string with_slurm_job(const std::string& name, std::string_view between) {
  const char* number = std::getenv("SLURM_JOB_ID");  // NOLINT(concurrency-mt-unsafe): read only
  return number == nullptr || *number == '\0' ? name : number + std::string(between) + name;
}

}  // namespace

std::string as_job_name(std::string_view text) {
  constexpr std::size_t kMost = 64;
  std::string name(text);
  std::ranges::replace_if(
      name, [](char c) { return !text::is_plain(c); }, '_');
  if (name.size() <= kMost) {
    return name;
  }
  const std::string hash = "-" + text::short_hash(text);
  return name.substr(0, kMost - hash.size()) + hash;
}

std::string job_name() {
  if (const auto given = environment("GRADWIRE_JOB")) {
    return as_job_name(*given);
  }
  for (const char* name : {"GRADWIRE_LET_JOIN", "GRADWIRE_JOIN"}) {
    if (const auto file = environment(name)) {
      return as_job_name(name_by_join_file(*file));
    }
  }
  const LaunchedJob launched = launched_job();
  return as_job_name(launched.text.empty() ? with_slurm_job(name_of_process(), "-")
                                           : with_slurm_job(launched.text, launched.is_slurm_step ? "." : "-"));
}

std::string name_of_started_job(const std::string& join_file) {
  if (const auto given = environment("GRADWIRE_JOB")) {
    return as_job_name(*given);
  }
  return as_job_name(join_file.empty() ? with_slurm_job(name_of_process(), "-") : name_by_join_file(join_file));
}

}  // namespace gradwire

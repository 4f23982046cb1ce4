#include "export/history_file.hpp"

#include <time.h>  // NOLINT(modernize-deprecated-headers): POSIX's clocks and local time
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/current_error.hpp"
#include "base/environment.hpp"
#include "export/textfile.hpp"
#include "gradwire/error.hpp"

namespace gradwire::metrics {
namespace {

constexpr std::size_t kMostArguments = 64;
constexpr std::size_t kMostText = 400;  // of an argument

double seconds_since_1970() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  std::string argument;
  while (arguments.size() < kMostArguments && std::getline(file, argument, '\0')) {
    arguments.push_back(argument.size() <= kMostText ? argument : argument.substr(0, kMostText) + "...");
  }
  return arguments;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

HistoryHead head_of_process(const std::string& part) {
  HistoryHead head{.part = part, .host = host_name(), .command = command_line()};
  head.started = head.written = seconds_since_1970();
  for (const EnvironmentVariable& variable : environment_variables()) {
    if (const auto value = environment(variable.name)) {
      head.environment.emplace_back(variable.name, value->substr(0, kMostText));
    }
  }
  return head;
}

std::string history_name(const std::string& part, int rank) {
  return "gradwire-" + part + "-rank-" + std::to_string(rank) + ".history";
}

HistorySink::HistorySink(HistoryOptions options)
    : options_(std::move(options)), aggregate_([](observe::SourceId id) { return observe::source_of(id); }) {}

void HistorySink::take(const observe::Round& round) {
  aggregate_.add(round, options_.rank);
  const std::uint64_t now = round.scale.nanoseconds;
  options_.begun = options_.begun.value_or(now);
  if (aggregate_.ranks().empty()) {
    return;
  }
  const double time = static_cast<double>(std::max(now, *options_.begun) - *options_.begun) * 1e-9;
  const bool writes = round.last || time >= next_;
  const bool due = std::any_of(aggregate_.ranks().begin(), aggregate_.ranks().end(),
                               [&](const auto& each) { return ranks_[each.first].is_due(time); });
  if (!writes && !due) {
    return;
  }
  const ReaderState reader{round.clock,      round.recorded, round.dropped, round.collector_seconds,
                           round.ring_bytes, round.last};
  const std::vector<ReplacedCalls> replaced = options_.replaced ? options_.replaced() : std::vector<ReplacedCalls>();
  for (const auto& [rank, totals] : aggregate_.ranks()) {
    ranks_[rank].add(time, totals, reader, replaced);
  }
  if (writes) {
    constexpr double kPart = 20;  // of the time that a job runs, between two versions
    constexpr double kMost = 30;
    next_ = time + std::clamp(time / kPart, 1.0, kMost);
    const bool saw_calls =
        std::any_of(replaced.begin(), replaced.end(), [](const ReplacedCalls& each) { return each.calls > 0; });
    write(time, round.last);
    if (round.last && options_.tell && !warned_ && ranks_.contains(0) && (!options_.replaced || saw_calls)) {
      options_.tell("this job's histories are in " + options_.directory.string() + "; gradwire report " +
                    options_.directory.string() + " makes a page of them");
    }
  }
}

void HistorySink::write(double time, bool last) {
  try {
    std::error_code error;
    std::filesystem::create_directories(options_.directory, error);
    if (error) {
      throw Error(ErrorCode::invalid_argument,
                  "cannot make the directory " + options_.directory.string() + ": " + error.message());
    }
    HistoryHead head = options_.head;
    head.written = head.started + time;
    head.ended = last;
    for (const auto& [rank, history] : ranks_) {
      head.rank = rank;
      const std::string name = history_name(head.part, rank);
      if (cleared_.insert(rank).second) {
        clear_leftovers(options_.directory, name);
      }
      write_whole(options_.directory, name, history.to_json(head));
    }
  } catch (...) {
    if (!std::exchange(warned_, true)) {
      options_.warn("report: " + std::string(current_error().what()) +
                    "; the job goes on, and so do tries (GRADWIRE_REPORT). Told once");
    }
  }
}

}  // namespace gradwire::metrics

#include "watch/history_file.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/command_line.hpp"
#include "base/environment.hpp"
#include "watch/host.hpp"
#include "watch/textfile.hpp"

namespace gradwire::watch {
namespace {

constexpr std::string_view kRegister = "GRADWIRE_REGISTER";
constexpr std::size_t kMostArguments = 64;
constexpr std::size_t kMostText = 400;  // most bytes of an argument

std::vector<std::string> command_line() {
  std::vector<std::string> arguments = without_secrets(own_command_line(kMostArguments));
  for (std::string& argument : arguments) {
    if (argument.size() > kMostText) {
      argument = argument.substr(0, kMostText) + "...";
    }
  }
  return arguments;
}

}  // namespace

HistoryHead head_of_process(const std::string& part, const std::string& job) {
  HistoryHead head{.part = part, .host = host_name(), .command = command_line(), .job = job};
  head.started = head.written = 1e-9 * static_cast<double>(realtime_nanoseconds());
  for (const EnvironmentVariable& variable : environment_variables()) {
    if (const auto value = environment(variable.name)) {
      const bool secret = variable.name == kRegister;  // it has the token of the run in it
      head.environment.emplace_back(
          variable.name, secret ? std::string("***") : without_secrets(variable.name, *value).substr(0, kMostText));
    }
  }
  return head;
}

std::string history_name(const std::string& part, int rank, const std::string& job) {
  return rank_file_name(part, rank, job, ".history");
}

HistoryWriter::HistoryWriter(HistoryOptions options)
    : options_(std::move(options)), files_(options_.directory, "report", "GRADWIRE_REPORT", options_.warn) {}

void HistoryWriter::take(Totals& totals) {
  const auto& ranks = totals.aggregate().ranks();
  const bool last = totals.reader().ended;
  options_.begun = options_.begun.value_or(totals.now());
  if (ranks.empty()) {
    return;
  }
  const double time = static_cast<double>(std::max(totals.now(), *options_.begun) - *options_.begun) * 1e-9;
  const bool writes = last || time >= next_;
  const bool due =
      std::any_of(ranks.begin(), ranks.end(), [&](const auto& each) { return ranks_[each.first].is_due(time); });
  if (!writes && !due) {
    return;
  }
  const std::vector<ReplacedCalls> replaced = totals.replaced();
  for (const auto& [rank, sums] : ranks) {
    ranks_[rank].add(time, sums, totals.reader(), replaced);
  }
  if (writes) {
    constexpr double kPart = 20;  // the time between two versions is the job's running time over this
    constexpr double kMost = 30;
    next_ = time + std::clamp(time / kPart, 1.0, kMost);
    write(time, last);
    const bool saw_calls =
        std::any_of(replaced.begin(), replaced.end(), [](const ReplacedCalls& each) { return each.calls > 0; });
    if (last && options_.tell && !files_.warned() && ranks_.contains(0) &&
        (saw_calls || !options_.quiet_without_calls)) {
      options_.tell("this job's histories are in " + files_.directory().string() + "; gradwire report " +
                    files_.directory().string() + " makes a page of them");
    }
  }
}

void HistoryWriter::write(double time, bool last) {
  files_.attempt([&] {
    HistoryHead head = options_.head;
    head.written = head.started + time;
    head.ended = last;
    for (const auto& [rank, history] : ranks_) {
      head.rank = rank;
      files_.write(history_name(head.part, rank, head.job), history.to_json(head));
    }
  });
}

}  // namespace gradwire::watch

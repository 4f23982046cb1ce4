// gradwire top: the ranks of a running job, from the files that they write or from what they serve.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <ctime>
#include <ostream>
#include <thread>

#include "base/environment.hpp"
#include "base/job_name.hpp"
#include "base/metrics_target.hpp"
#include "base/secret_file.hpp"
#include "base/units.hpp"
#include "cli/commands.hpp"
#include "gradwire/error.hpp"
#include "watch/live/folder_reader.hpp"
#include "watch/live/http_reader.hpp"
#include "watch/live/terminal.hpp"

namespace gradwire::cli {

namespace live = watch::live;

namespace {

constexpr std::size_t kPlainWidth = 160;  // width of output that is not to a terminal

std::chrono::nanoseconds interval_of(const TopOptions& options) {
  std::chrono::nanoseconds interval{};
  try {
    interval = parse_duration(options.interval);
  } catch (const Error& error) {
    throw Error(error.code(), std::string("top: --interval: ") + error.what());
  }
  if (interval < std::chrono::milliseconds(100) || interval > std::chrono::hours(1)) {
    throw Error(ErrorCode::invalid_argument,
                "top: --interval " + options.interval + " is not between 100ms and 60min; 1s is the default");
  }
  return interval;
}

// Parses the place that the user named: as in GRADWIRE_METRICS, or a folder alone.
MetricsTarget target_of(const std::string& text) {
  MetricsTarget target;
  const auto begins_with = [&](const char* kind) { return text.starts_with(kind); };
  constexpr std::array kKinds{"file:", "http:", "otlp:", "unix:"};
  if (std::none_of(kKinds.begin(), kKinds.end(), begins_with)) {
    target.directory = text;
    return target;
  }
  try {
    target = MetricsTarget::parse(text);
  } catch (const Error&) {  // its text is about GRADWIRE_METRICS
    target = {};
  }
  const int places = (target.directory.empty() ? 0 : 1) + (target.sockets.empty() ? 0 : 1) + (target.http ? 1 : 0);
  if (places != 1 || !target.otlp.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "top: \"" + text +
                    "\" is not one place of metrics that it can read; name the directory of the job's "
                    "GRADWIRE_METRICS=file:DIRECTORY or unix:DIRECTORY, or http:[ADDRESS:]PORT[+rank] with an address "
                    "in numbers, such as http:127.0.0.1:9464+rank");
  }
  return target;
}

// Returns the token for metrics over HTTP; empty: none.
std::string token_of(const TopOptions& options) {
  constexpr const char* kName = "GRADWIRE_METRICS_TOKEN";
  if (options.token_file) {
    return read_token_file(*options.token_file);
  }
  const std::optional<std::string> variable = environment(kName);
  return variable ? read_token_file(secret_path(*variable, kName)) : "";
}

class Watch {
 public:
  explicit Watch(const TopOptions& options)
      : named_(options.job ? std::optional(as_job_name(*options.job)) : std::nullopt), place_(options.folder) {
    const MetricsTarget target = target_of(options.folder);
    if (target.http) {
      http_.emplace(*target.http, token_of(options));
    } else {
      const std::filesystem::path folder = target.directory.empty() ? target.sockets : target.directory;
      files_.emplace(folder);
      place_ = std::filesystem::absolute(folder).lexically_normal().string();
    }
  }

  void look() {
    const std::optional<std::string> shown = snapshot_.ranks.empty() ? std::nullopt : std::optional(snapshot_.job);
    snapshot_ = http_ ? http_->read() : files_->read();
    live::choose_job(snapshot_, named_, shown);
    history_.take(snapshot_.ranks);
  }
  void look_at_next_job() {
    if (!snapshot_.other_jobs.empty()) {
      named_ = live::next_job(snapshot_);
      look();
    }
  }
  [[nodiscard]] std::vector<live::StyledLine> draw(live::Size size, bool keys) const {
    return live::draw(snapshot_, live::rows_of(snapshot_, history_),
                      {.folder = place_, .width = size.width, .height = size.height, .keys = keys});
  }
  /// Throws an Error where the folder can never show anything, or with `now` where it does not show anything yet.
  void refuse_what_is_missing(bool now) const {
    std::error_code ignored;
    const bool other =
        files_ && std::filesystem::exists(place_, ignored) && !std::filesystem::is_directory(place_, ignored);
    if (!snapshot_.problem.empty() && (now || other)) {
      throw Error(ErrorCode::invalid_argument, "top: " + snapshot_.problem);
    }
  }

 private:
  std::optional<live::FolderReader> files_;  // either this one or http_ is set
  std::optional<live::HttpReader> http_;
  std::optional<std::string> named_;
  std::string place_;  // the folder, or the address
  live::FolderSnapshot snapshot_;
  live::RateTracker history_;
};

void print_time(std::ostream& out) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  if (::gmtime_r(&now, &parts) != nullptr &&
      std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts) > 0) {
    out << text.data() << '\n';
  }
}

int print_blocks(Watch& watch, const TopOptions& options, std::chrono::nanoseconds interval, std::ostream& out) {
  const std::size_t width = ::isatty(STDOUT_FILENO) == 1 ? live::terminal_size().width : kPlainWidth;
  for (;;) {
    if (!options.once) {
      print_time(out);
    }
    for (const live::StyledLine& line : watch.draw({.width = width, .height = 0}, false)) {
      out << line.text.substr(0, line.text.find_last_not_of(' ') + 1) << '\n';
    }
    out << (options.once ? "" : "\n") << std::flush;
    if (!out) {
      throw Error(ErrorCode::invalid_argument, "top: standard output cannot be written");
    }
    if (options.once) {
      return 0;
    }
    std::this_thread::sleep_for(interval);
    watch.look();
  }
}

// Draws until it is ended; returns the signal that ended it, or 0 for a key.
int draw_until_quit(Watch& watch, std::chrono::nanoseconds interval) {
  using LookClock = std::chrono::steady_clock;
  live::Terminal terminal;
  LookClock::time_point next = LookClock::now() + interval;
  for (;;) {
    terminal.show(watch.draw(live::terminal_size(), true));
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(next - LookClock::now());
    switch (terminal.wait(std::max(left, std::chrono::nanoseconds(0)))) {
      case live::Terminal::Event::quit: return 0;
      case live::Terminal::Event::ended: return terminal.signal();
      case live::Terminal::Event::next_job: watch.look_at_next_job(); break;
      case live::Terminal::Event::resized:
      case live::Terminal::Event::none: break;
    }
    if (LookClock::now() >= next) {
      watch.look();
      next = LookClock::now() + interval;
    }
  }
}

}  // namespace

int top(const TopOptions& options, std::ostream& out) {
  const std::chrono::nanoseconds interval = interval_of(options);
  Watch watch(options);
  watch.look();
  watch.refuse_what_is_missing(options.once);
  if (options.once || !live::can_draw()) {
    return print_blocks(watch, options, interval, out);
  }
  const int signal = draw_until_quit(watch, interval);
  if (signal != 0) {
    ::raise(signal);  // so that the parent process sees which signal ended it
  }
  return 128 * (signal != 0 ? 1 : 0) + signal;
}

}  // namespace gradwire::cli

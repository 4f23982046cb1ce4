// Begins to watch this process if the environment asks for it.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/current_error.hpp"
#include "base/environment.hpp"
#include "base/job_name.hpp"
#include "base/metrics_target.hpp"
#include "base/report_place.hpp"
#include "base/secret_file.hpp"
#include "base/start_directory.hpp"
#include "base/trace_target.hpp"
#include "base/world_name.hpp"
#include "gradwire/error.hpp"
#include "observe/collector.hpp"
#include "observe/watching.hpp"
#include "watch/event_file.hpp"
#include "watch/history_file.hpp"
#include "watch/http.hpp"
#include "watch/http_library.hpp"
#include "watch/otlp_file.hpp"
#include "watch/socket_listener.hpp"
#include "watch/textfile.hpp"

namespace gradwire::watch {
namespace {

using Warn = std::function<void(const std::string&)>;

// Runs one of the parts; its error is logged, and the other parts work on.
template <typename Body>
void attempt(const Warn& warn, Body&& body) noexcept {
  try {
    body();
  } catch (...) {
    try {
      warn(current_error().what());
    } catch (...) {  // NOLINT(bugprone-empty-catch): without memory it cannot be logged
    }
  }
}

// Tells something that the user waits for. It is no line of the log, where most users would not see it.
void tell(const std::string& text) {
  const std::string level = environment("GRADWIRE_LOG").value_or("warn");
  if (level != "error" && level != "off") {
    std::fputs(("gradwire: " + text + "\n").c_str(), stderr);
  }
}

// A text with the rank, where it is known.
std::string whose(const observe::WatchedProcess& process) {
  std::optional<int> rank = process.rank ? process.rank() : std::nullopt;
  if (const auto first = observe::source_of(observe::first_source()); !rank && first && !first->shares_process) {
    rank = first->rank;
  }
  return rank ? " of rank " + std::to_string(*rank) : "";
}

// Makes paths absolute, so that a job that changes its directory writes files where it was started.
MetricsTarget absolute(MetricsTarget target) {
  target.directory = from_start_directory(target.directory);
  target.otlp = from_start_directory(target.otlp);
  target.sockets = from_start_directory(target.sockets);
  return target;
}
TraceTarget absolute(TraceTarget target) {
  target.directory = from_start_directory(target.directory);
  return target;
}

// Parses a variable; a wrong value ends no job.
template <typename Target>
Target target_of(const std::string& value, const char* what, const observe::WatchedProcess& process) {
  try {
    return absolute(Target::parse(value));
  } catch (const Error& error) {
    throw Error(error.code(), std::string(error.what()) + ". The job goes on without " + what + whose(process));
  }
}

// Returns the token that requests over HTTP must have; empty: none. If it cannot be read, an Error keeps the server
// from starting.
std::string token_of_environment() {
  constexpr const char* kName = "GRADWIRE_METRICS_TOKEN";
  const std::optional<std::string> value = environment(kName);
  if (!value) {
    return {};
  }
  try {
    return read_token_file(from_start_directory(secret_path(*value, kName).string()));
  } catch (const Error& error) {
    throw Error(error.code(), "metrics over HTTP: " + std::string(error.what()) +
                                  " (GRADWIRE_METRICS_TOKEN). The job goes on without");
  }
}

void subscribe_metrics(TotalsSink& sink, const MetricsTarget& target, const Warn& warn) {
  if (!target.directory.empty()) {
    sink.subscribe(std::make_unique<TextfileWriter>(TextfileOptions{.directory = target.directory, .warn = warn}));
  }
  if (!target.otlp.empty()) {
    sink.subscribe(std::make_unique<OtlpWriter>(OtlpOptions{.directory = target.otlp, .warn = warn}));
  }
  if (!target.sockets.empty()) {
    sink.subscribe(
        std::make_unique<SocketListener>(SocketOptions{.directory = target.sockets, .warn = warn}, sink.totals()));
  }
  if (target.http) {
    sink.subscribe(std::make_unique<HttpListener>(
        HttpOptions{.target = *target.http, .token = token_of_environment(), .warn = warn}, sink.totals(),
        load_http_library()));
  }
}

void subscribe_history(TotalsSink& sink, const std::string& directory, const observe::WatchedProcess& process,
                       const Warn& warn) {
  sink.subscribe(std::make_unique<HistoryWriter>(HistoryOptions{.directory = directory,
                                                                .head = head_of_process(process.part, process.job),
                                                                .begun = observe::monotonic_nanoseconds(),
                                                                .quiet_without_calls = process.replaced != nullptr,
                                                                .warn = warn,
                                                                .tell = tell}));
}

void begin(observe::WatchedProcess process) {
  process.part = with_world_name(process.part);
  const Warn warn = process.warn ? process.warn : observe::warn;
  std::optional<ReportPlace> place;
  attempt(warn, [&] { place = report_place_of_environment(); });
  const std::optional<std::string> metrics = environment("GRADWIRE_METRICS");
  const bool keeps_history = place && place->directory;
  if (process.job.empty() && (metrics || keeps_history)) {
    attempt(warn, [&] { process.job = job_name(); });
  }
  const auto sink = std::make_shared<TotalsSink>(process);
  attempt(warn, [&] {
    if (metrics) {
      subscribe_metrics(*sink, target_of<MetricsTarget>(*metrics, "metrics", process), warn);
    }
  });
  attempt(warn, [&] {
    if (keeps_history) {
      subscribe_history(*sink, *place->directory, process, warn);
    }
  });
  attempt(warn, [&] {
    if (!sink->done()) {
      observe::add_sink(sink);
    }
  });
  attempt(warn, [&] {
    if (const auto value = environment("GRADWIRE_TRACE")) {
      observe::add_sink(
          std::make_shared<EventFileSink>(EventFileOptions{.target = target_of<TraceTarget>(*value, "a trace", process),
                                                           .part = process.part,
                                                           .rank = process.rank,
                                                           .warn = warn}));
    }
  });
}

}  // namespace
}  // namespace gradwire::watch

namespace gradwire::observe {

bool watch(const WatchedProcess& process) noexcept {
  // The flag holds the process's id, since a forked child, perhaps made in the middle of this, begins anew. It is no
  // lock, which the child could inherit taken.
  static std::atomic<pid_t> begun{0};
  static std::atomic<pid_t> done{0};
  const pid_t self = ::getpid();
  if (done.load(std::memory_order_acquire) == self) {
    return true;
  }
  if (begun.exchange(self) == self) {
    while (done.load(std::memory_order_acquire) != self) {
      std::this_thread::yield();  // later events must be recorded
    }
    return true;
  }
  try {
    watch::begin(process);
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory
  }
  done.store(self, std::memory_order_release);
  return true;
}

}  // namespace gradwire::observe

#include "export/exporting.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/current_error.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/metrics_target.hpp"
#include "base/report_place.hpp"
#include "export/event_file.hpp"
#include "export/history_file.hpp"
#include "export/http.hpp"
#include "export/http_library.hpp"
#include "export/textfile.hpp"
#include "observe/collector.hpp"

namespace gradwire::metrics {
namespace {

using Warn = std::function<void(const std::string&)>;

// What is wrong with one of them is told, and the other one works.
template <typename Add>
void add(const char* variable, const Warn& warn, Add&& add_sinks) noexcept {
  try {
    if (const auto value = environment(variable)) {
      add_sinks(*value);
    }
  } catch (...) {
    try {
      warn(current_error().what());
    } catch (...) {  // NOLINT(bugprone-empty-catch): no memory to tell it
    }
  }
}

// What a user waits for, so it is no line of the log, where most would not see it.
void tell(const std::string& text) {
  const std::string level = environment("GRADWIRE_LOG").value_or("warn");
  if (level != "error" && level != "off") {
    std::fputs(("gradwire: " + text + "\n").c_str(), stderr);
  }
}

// Files and pages are made by different threads.
std::function<std::vector<ReplacedCalls>()> one_at_a_time(const std::function<std::vector<ReplacedCalls>()>& calls) {
  if (!calls) {
    return {};
  }
  return [calls, mutex = std::make_shared<std::mutex>()] {
    const std::lock_guard lock(*mutex);
    return calls();
  };
}

void begin(const ExportOptions& options) noexcept {
  const Warn warn = options.warn ? options.warn : [](const std::string& text) { log(LogLevel::warning, text); };
  const auto replaced = one_at_a_time(options.replaced);
  add("GRADWIRE_METRICS", warn, [&](const std::string& value) {
    const auto target = MetricsTarget::parse(value);
    if (!target.directory.empty()) {
      observe::add_sink(std::make_shared<TextfileSink>(TextfileOptions{.directory = target.directory,
                                                                       .part = options.part,
                                                                       .rank = options.rank,
                                                                       .replaced = replaced,
                                                                       .warn = warn}));
    }
    if (target.http) {
      observe::add_sink(std::make_shared<HttpSink>(
          HttpOptions{
              .target = *target.http, .part = options.part, .rank = options.rank, .replaced = replaced, .warn = warn},
          load_http_library()));
    }
  });
  add("GRADWIRE_TRACE", warn, [&](const std::string& value) {
    observe::add_sink(std::make_shared<EventFileSink>(EventFileOptions{
        .target = TraceTarget::parse(value), .part = options.part, .rank = options.rank, .warn = warn}));
  });
  add("GRADWIRE_REPORT", warn, [&](const std::string& value) {
    if (const auto directory = report_place(value).directory) {
      observe::add_sink(std::make_shared<HistorySink>(HistoryOptions{.directory = *directory,
                                                                     .head = head_of_process(options.part),
                                                                     .begun = observe::monotonic_nanoseconds(),
                                                                     .rank = options.rank,
                                                                     .replaced = replaced,
                                                                     .warn = warn,
                                                                     .tell = tell}));
    }
  });
}

}  // namespace

void export_from_environment(const ExportOptions& options) noexcept {
  // By process: a child that forks off, perhaps in the middle of this, is one of its own. No lock, which it could
  // inherit taken.
  static std::atomic<pid_t> begun{0};
  static std::atomic<pid_t> done{0};
  const pid_t self = ::getpid();
  if (done.load(std::memory_order_acquire) == self) {
    return;
  }
  if (begun.exchange(self) == self) {
    while (done.load(std::memory_order_acquire) != self) {
      std::this_thread::yield();  // what follows is to be recorded
    }
    return;
  }
  begin(options);
  done.store(self, std::memory_order_release);
}

}  // namespace gradwire::metrics

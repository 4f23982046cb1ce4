#include "export/exporting.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "base/current_error.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/report_place.hpp"
#include "export/event_file.hpp"
#include "export/history_file.hpp"
#include "export/textfile.hpp"
#include "gradwire/error.hpp"
#include "observe/collector.hpp"

namespace gradwire::metrics {
namespace {

using Warn = std::function<void(const std::string&)>;

// What is wrong with one of them is told, and the other one works.
template <typename Make>
void add(const char* variable, const Warn& warn, Make&& make) noexcept {
  try {
    if (const auto value = environment(variable)) {
      if (const std::shared_ptr<observe::Sink> sink = make(*value)) {
        observe::add_sink(sink);
      }
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

void begin(const ExportOptions& options) noexcept {
  const Warn warn = options.warn ? options.warn : [](const std::string& text) { log(LogLevel::warning, text); };
  add("GRADWIRE_METRICS", warn, [&](const std::string& value) {
    return std::make_shared<TextfileSink>(TextfileOptions{.directory = Target::parse(value).directory,
                                                          .part = options.part,
                                                          .rank = options.rank,
                                                          .replaced = options.replaced,
                                                          .warn = warn});
  });
  add("GRADWIRE_TRACE", warn, [&](const std::string& value) {
    return std::make_shared<EventFileSink>(EventFileOptions{
        .target = TraceTarget::parse(value), .part = options.part, .rank = options.rank, .warn = warn});
  });
  add("GRADWIRE_REPORT", warn, [&](const std::string& value) {
    const auto directory = report_place(value).directory;
    return directory ? std::make_shared<HistorySink>(HistoryOptions{.directory = *directory,
                                                                    .head = head_of_process(options.part),
                                                                    .begun = observe::monotonic_nanoseconds(),
                                                                    .rank = options.rank,
                                                                    .replaced = options.replaced,
                                                                    .warn = warn,
                                                                    .tell = tell})
                     : nullptr;
  });
}

}  // namespace

Target Target::parse(std::string_view text) {
  constexpr std::string_view kFile = "file:";
  if (!text.starts_with(kFile) || text.size() == kFile.size()) {
    throw Error(ErrorCode::invalid_argument, "GRADWIRE_METRICS is \"" + std::string(text) +
                                                 "\"; write file:DIRECTORY, such as file:/var/lib/node_exporter");
  }
  return {.directory = std::string(text.substr(kFile.size()))};
}

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

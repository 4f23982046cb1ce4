#include "observe/watching.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "base/environment.hpp"
#include "base/log.hpp"

namespace gradwire::observe {

void warn(const std::string& text) {
  if (has_log_sink()) {
    return log(LogLevel::warning, text);
  }
  const std::string level = environment("GRADWIRE_LOG").value_or("warn");
  if (level != "error" && level != "off") {
    std::fputs(("gradwire: warning: " + text + "\n").c_str(), stderr);
  }
}

void say_that_nobody_watches(const WatchedProcess& process) noexcept {
  static std::atomic<pid_t> said{0};  // a forked child logs it again
  if (said.exchange(::getpid()) == ::getpid()) {
    return;
  }
  try {
    std::string names;
    for (const char* name : {"GRADWIRE_METRICS", "GRADWIRE_TRACE", "GRADWIRE_REPORT"}) {
      names += environment(name) ? (names.empty() ? "" : ", ") + std::string(name) : "";
    }
    if (!names.empty()) {
      const std::string text = names + ": this program leaves out what writes metrics, traces and histories " +
                               "(gradwire/without_watch.hpp), so nothing is written";
      process.warn ? process.warn(text) : warn(text);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): without memory it cannot be logged
  }
}

}  // namespace gradwire::observe

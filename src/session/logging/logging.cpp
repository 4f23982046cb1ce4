#include "session/logging/logging.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/environment.hpp"
#include "base/mutex.hpp"
#include "gradwire/error.hpp"

namespace gradwire::session {
namespace {

constexpr int kSeveral = -1;  // this process has sessions of several ranks

spdlog::logger& logger() {
  // Never destroyed: sessions may outlive static objects.
  static auto& instance = *new spdlog::logger("gradwire", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  return instance;
}

std::optional<spdlog::level::level_enum> level_of(const std::string& name) {
  for (const auto& [text, level] : {std::pair{"debug", spdlog::level::debug}, std::pair{"info", spdlog::level::info},
                                    std::pair{"warn", spdlog::level::warn}, std::pair{"error", spdlog::level::err},
                                    std::pair{"off", spdlog::level::off}}) {
    if (name == text) {
      return level;
    }
  }
  return std::nullopt;
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    default: return spdlog::level::err;
  }
}

// "gradwire 14:03:59.123 rank 2: warning: ..."
std::string pattern(const std::string& rank) { return "%n %H:%M:%S.%e" + rank + ": %l: %v"; }

void sink(LogLevel level, std::string_view message) { logger().log(level_of(level), "{}", message); }

}  // namespace

void bind_log() {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::string name = environment("GRADWIRE_LOG").value_or("warn");
    const auto level = level_of(name);
    logger().set_level(level.value_or(spdlog::level::warn));
    logger().set_pattern(pattern(""));
    set_log_sink(&sink);
    if (!level) {  // a bad log level only gets a warning, since logging must not end a job
      log(LogLevel::warning, "GRADWIRE_LOG is \"" + name +
                                 "\", which is no level: write debug, info, warn, error or "
                                 "off. The job goes on with warn");
    }
  });
}

void name_rank(int rank) {
  static Mutex mutex;
  static std::optional<int> named GUARDED_BY(mutex);
  const MutexLock lock(mutex);
  if (named == rank) {
    return;
  }
  logger().set_pattern(pattern(named ? "" : " rank " + std::to_string(rank)));
  named = named ? kSeveral : rank;
}

bool logs(LogLevel level) noexcept { return logger().should_log(level_of(level)); }

}  // namespace gradwire::session

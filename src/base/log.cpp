#include "base/log.hpp"

#include <atomic>

namespace gradwire {
namespace {
std::atomic<LogSink> g_sink{nullptr};
}

void set_log_sink(LogSink sink) noexcept { g_sink.store(sink); }

bool has_log_sink() noexcept { return g_sink.load() != nullptr; }

void log(LogLevel level, std::string_view message) noexcept {
  const LogSink sink = g_sink.load();
  if (sink == nullptr) {
    return;
  }
  try {
    sink(level, message);
  } catch (...) {  // NOLINT(bugprone-empty-catch): a failing log must not fail the training job
  }
}

}  // namespace gradwire

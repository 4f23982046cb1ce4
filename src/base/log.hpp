// Log lines leave the lower layers through one callback; the session binds it to spdlog. Silent until bound.
#pragma once

#include <string_view>

namespace gradwire {

enum class LogLevel { debug, info, warning, error };
using LogSink = void (*)(LogLevel level, std::string_view message);

/// Null: silent. Any thread may call this.
void set_log_sink(LogSink sink) noexcept;
/// Whether there is a sink.
[[nodiscard]] bool has_log_sink() noexcept;
/// Never throws.
void log(LogLevel level, std::string_view message) noexcept;

}  // namespace gradwire

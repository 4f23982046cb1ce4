// Metrics as OpenTelemetry knows them: an ExportMetricsServiceRequest in OTLP's JSON, on one line. No clock, lock or
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "watch/metric.hpp"

namespace gradwire::watch {

/// Whose metrics they are, as attributes of the resource.
struct OtlpResource {
  std::string part;  // as observe::WatchedProcess
  int rank = 0;
  std::string host;
  int process = 0;           // its number
  std::int64_t started = 0;  // since when sums count; nanoseconds since 1970
};

/// "gradwire_bytes_sent" of "gradwire_bytes_sent_total": the format says by itself what is a counter.
[[nodiscard]] std::string_view otlp_name(std::string_view name);
/// In UCUM, as OpenTelemetry asks for: "s", "By", "1", "{step}"; empty where there is none.
[[nodiscard]] std::string_view otlp_unit(std::string_view name);

/// With the newline. Families without samples are left out.
[[nodiscard]] std::string to_otlp(std::span<const Family> families, const OtlpResource& resource, std::int64_t now);

}  // namespace gradwire::watch

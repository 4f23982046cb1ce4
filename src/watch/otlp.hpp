// Metrics in OpenTelemetry's model: an ExportMetricsServiceRequest in OTLP's JSON, on one line. This file uses no
// clock, lock or thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "watch/metric.hpp"

namespace gradwire::watch {

/// The process that the metrics belong to, as attributes of the resource.
struct OtlpResource {
  std::string part;  // see observe::WatchedProcess
  int rank = 0;
  std::string host;
  int process = 0;           // its number
  std::int64_t started = 0;  // when sums began, in nanoseconds since 1970
  std::string job = {};      // its name; empty: not known
};

/// "gradwire_bytes_sent" for "gradwire_bytes_sent_total": the format marks counters in another way.
[[nodiscard]] std::string_view otlp_name(std::string_view name);
/// The unit in UCUM, as OpenTelemetry requires: "s", "By", "1", "{step}"; empty where there is none.
[[nodiscard]] std::string_view otlp_unit(std::string_view name);

/// The line with its newline. Families without samples are left out.
[[nodiscard]] std::string to_otlp(std::span<const Family> families, const OtlpResource& resource, std::int64_t now);

}  // namespace gradwire::watch

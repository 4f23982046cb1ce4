#include "watch/otlp.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "gradwire/version.hpp"
#include "watch/json_text.hpp"

namespace gradwire::watch {
namespace {

constexpr std::string_view kTotal = "_total";
constexpr int kCumulative = 2;  // AGGREGATION_TEMPORALITY_CUMULATIVE

// Units by the ending of a name; of two endings the longer one stands first.
constexpr std::array<std::pair<std::string_view, std::string_view>, 21> kUnits{{{"_byte_seconds", "By.s"},
                                                                                {"_bytes_per_second", "By/s"},
                                                                                {"_seconds", "s"},
                                                                                {"_ratio", "1"},
                                                                                {"_bytes", "By"},
                                                                                {"_bytes_in", "By"},
                                                                                {"_bytes_sent", "By"},
                                                                                {"_bytes_uncompressed", "By"},
                                                                                {"_clocks", "{clock}"},
                                                                                {"_rows", "{row}"},
                                                                                {"_steps", "{step}"},
                                                                                {"_calls", "{call}"},
                                                                                {"_events", "{event}"},
                                                                                {"_events_dropped", "{event}"},
                                                                                {"_errors", "{error}"},
                                                                                {"_results", "{result}"},
                                                                                {"_switches", "{switch}"},
                                                                                {"_buckets", "{bucket}"},
                                                                                {"_frames_sent", "{frame}"},
                                                                                {"_world_size", "{rank}"},
                                                                                {"_nonfinite_frames", "{frame}"}}};

// protobuf's JSON writes 64-bit numbers as texts.
void append_count(JsonText& json, std::string_view key, std::uint64_t value) {
  json.key(key).string(std::to_string(value));
}

void append_double(JsonText& json, std::string_view key, double value) {
  json.key(key);
  std::isfinite(value) ? json.number(value)
                       : json.string(std::isnan(value) ? "NaN"
                                     : value > 0       ? "Infinity"
                                                       : "-Infinity");
}

void append_attribute(JsonText& json, std::string_view key, std::string_view value) {
  json.open('{').key("key").string(key).key("value").open('{').key("stringValue").string(value).close('}').close('}');
}

void append_attribute(JsonText& json, std::string_view key, std::int64_t value) {
  json.open('{').key("key").string(key).key("value").open('{').key("intValue").string(std::to_string(value));
  json.close('}').close('}');
}

class Line {
 public:
  Line(const OtlpResource& resource, std::int64_t now) : resource_(resource), now_(now) {}

  std::string of(std::span<const Family> families) {
    json_.open('{').key("resourceMetrics").open('[').open('{').key("resource").open('{');
    append_resource();
    json_.close('}').key("scopeMetrics").open('[').open('{').key("scope").open('{').key("name").string("gradwire");
    json_.key("version").string(kVersion).close('}').key("metrics").open('[');
    for (const Family& family : families) {
      if (!family.samples.empty() || !family.histograms.empty()) {
        append(family);
      }
    }
    json_.close(']').close('}').close(']').close('}').close(']').close('}');
    return json_.text() + "\n";
  }

 private:
  void append_resource() {
    json_.key("attributes").open('[');
    append_attribute(json_, "service.name", "gradwire");
    append_attribute(json_, "service.version", std::string_view(kVersion));
    append_attribute(json_, "service.instance.id",
                     (resource_.job.empty() ? "" : resource_.job + "-") + resource_.part + "-rank-" +
                         std::to_string(resource_.rank));
    append_attribute(json_, "host.name", resource_.host);
    append_attribute(json_, "process.pid", resource_.process);
    append_attribute(json_, "gradwire.part", resource_.part);
    append_attribute(json_, "gradwire.rank", resource_.rank);
    if (!resource_.job.empty()) {
      append_attribute(json_, "gradwire.job", resource_.job);
    }
    json_.close(']');
  }

  void append(const Family& family) {
    static constexpr std::array<const char*, 3> kTypes{"sum", "gauge", "histogram"};
    json_.open('{').key("name").string(otlp_name(family.name)).key("description").string(family.help);
    json_.key("unit").string(otlp_unit(family.name)).key(kTypes[static_cast<std::size_t>(family.type)]).open('{');
    if (family.type != MetricType::gauge) {
      json_.key("aggregationTemporality").number(kCumulative);
    }
    if (family.type == MetricType::counter) {
      json_.key("isMonotonic").boolean(true);
    }
    json_.key("dataPoints").open('[');
    for (const Sample& sample : family.samples) {
      begin_point(sample.labels, family.type != MetricType::gauge);
      append_double(json_, "asDouble", sample.value);
      json_.close('}');
    }
    for (const HistogramSample& sample : family.histograms) {
      begin_point(sample.labels, true);
      append(sample.histogram);
      json_.close('}');
    }
    json_.close(']').close('}').close('}');
  }

  void begin_point(const Labels& labels, bool has_start) {
    json_.open('{').key("attributes").open('[');
    for (const auto& [name, value] : labels) {
      append_attribute(json_, name, value);
    }
    json_.close(']');
    if (has_start) {
      append_count(json_, "startTimeUnixNano", static_cast<std::uint64_t>(resource_.started));
    }
    append_count(json_, "timeUnixNano", static_cast<std::uint64_t>(now_));
  }

  void append(const Histogram& histogram) {
    append_count(json_, "count", histogram.count());
    append_double(json_, "sum", histogram.sum());
    json_.key("bucketCounts").open('[');
    for (const std::uint64_t count : histogram.counts()) {
      json_.string(std::to_string(count));
    }
    json_.close(']').key("explicitBounds").open('[');
    for (std::size_t i = 0; i < Histogram::kBounds; ++i) {
      json_.number(histogram.bound(i));
    }
    json_.close(']');
  }

  const OtlpResource& resource_;
  const std::int64_t now_;
  JsonText json_;
};

}  // namespace

std::string_view otlp_name(std::string_view name) {
  return name.ends_with(kTotal) ? name.substr(0, name.size() - kTotal.size()) : name;
}

std::string_view otlp_unit(std::string_view name) {
  const std::string_view bare = otlp_name(name);
  const auto* const found =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& unit) { return bare.ends_with(unit.first); });
  return found == kUnits.end() ? std::string_view() : found->second;
}

std::string to_otlp(std::span<const Family> families, const OtlpResource& resource, std::int64_t now) {
  return Line(resource, now).of(families);
}

}  // namespace gradwire::watch

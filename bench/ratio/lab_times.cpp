#include "bench/ratio/lab_times.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "bench/support/report.hpp"

namespace gradwire::bench {
LabTimes::LabTimes(const std::string& file, int ranks) {
  const auto reject = [&](const std::string& why) { throw std::runtime_error(file + ": " + why); };
  std::ifstream in(file);
  const Json report = Json::parse(in, nullptr, false);
  if (report.is_discarded() || report.value("schema", "") != "gradwire.bench_all_reduce.1") {
    reject("not a report of bench_all_reduce");
  }
  const Json& link = report.at("link");
  if (link.at("emulated").get<bool>() || link.at("bytes_per_second").is_null()) {
    reject("its link was emulated or not measured; run bench_all_reduce through bench/lab/lab");
  }
  bytes_per_second_ = link.at("bytes_per_second").get<double>();
  for (const Json& row : report.at("rows")) {
    if (row.at("ranks").get<int>() != ranks) {
      reject("was run with " + row.at("ranks").dump() + " ranks, not " + std::to_string(ranks) + "; see --ranks");
    }
    const auto codec = row.at("codec").get<std::string>();
    const auto bytes = row.at("bytes").get<double>();
    const double seconds = row.at("time_us_p50").get<double>() * 1e-6;
    const auto note = [&](Times& times) {
      const auto [at, added] = times.emplace(bytes, seconds);
      at->second = std::min(at->second, seconds);
    };
    if (codec == "exact" || codec == "fp32") {
      note(dense_);
    }
    if (row.at("library") == "gradwire") {
      note(codecs_[codec]);
    }
  }
}

std::optional<double> LabTimes::time_of(const Times& times, double bytes) {
  const auto above = times.lower_bound(bytes);
  if (above == times.end()) {
    return std::nullopt;
  }
  if (above->first == bytes) {
    return above->second;
  }
  if (above == times.begin()) {
    return std::nullopt;
  }
  const auto below = std::prev(above);
  const double part = (bytes - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

std::optional<double> LabTimes::speedup(const std::string& codec, double bytes) const {
  const auto found = codecs_.find(codec);
  const auto dense = time_of(dense_, bytes);
  const auto compressed = found == codecs_.end() ? std::nullopt : time_of(found->second, bytes);
  return dense && compressed ? std::optional(*dense / *compressed) : std::nullopt;
}

}  // namespace gradwire::bench

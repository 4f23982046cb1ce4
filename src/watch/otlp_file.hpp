// Metrics as files of OTLP's JSON, a line each time, which OpenTelemetry's collector reads as files of otlp_json.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "watch/textfile.hpp"

namespace gradwire::watch {

struct OtlpOptions {
  std::filesystem::path directory;  // made where it is missing
  std::chrono::nanoseconds interval = TextfileOptions{}.interval;
  std::uint64_t most_bytes = std::uint64_t{64} << 20;  // a larger file is renamed, and replaces the one before
  std::function<void(const std::string&)> warn;
};

/// As file_name() with ".otlp.jsonl" at its end, to which renaming adds ".1".
[[nodiscard]] std::string otlp_file_name(const std::string& part, int rank, const std::string& job = {});

/// Appends `line` completely or not at all. Error(invalid_argument) names the file and the reason.
void append_line(const std::filesystem::path& file, const std::string& line);

/// A failed write is reported once, and tried again at the next turn.
class OtlpWriter final : public Subscriber {
 public:
  explicit OtlpWriter(const OtlpOptions& options);
  void take(Totals& totals) override;

 private:
  void append(const std::string& name, const std::string& line);

  RankFiles files_;
  Turns turns_;
  std::uint64_t most_bytes_;
  std::int64_t started_;
  std::set<std::string> begun_;  // files that this process has begun
};

}  // namespace gradwire::watch

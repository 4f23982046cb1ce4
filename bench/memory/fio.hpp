// Runs fio, the usual program for measuring disks, so that results stand beside its rates of the same disk.
#pragma once

#include <array>
#include <cstdio>
#include <optional>
#include <string>

#include "bench/support/report.hpp"

namespace gradwire::bench {

/// Returns the output of a command; empty if it failed.
inline std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* const out = ::popen((command + " 2>/dev/null").c_str(), "r");
  std::array<char, 4096> piece{};
  for (std::size_t bytes = 0; out != nullptr && (bytes = std::fread(piece.data(), 1, piece.size(), out)) > 0;) {
    text.append(piece.data(), bytes);
  }
  return out != nullptr && ::pclose(out) == 0 ? text : std::string();
}

/// Runs one job of fio on a scratch file of `folder`, with direct requests through io_uring. `job` names the size, the
/// kind and the number of requests, and the seconds. Returns the job of fio's report, or no value where fio is not
/// installed or fails.
inline std::optional<Json> run_fio(const std::string& folder, const std::string& job) {
  const std::string text = output_of("fio --name=gradwire --directory='" + folder + "' " + job +
                                     " --direct=1 --ioengine=io_uring --time_based --unlink=1 --output-format=json");
  const Json report = Json::parse(text, nullptr, false);
  return report.is_discarded() || !report.contains("jobs") ? std::nullopt : std::optional<Json>(report["jobs"][0]);
}

}  // namespace gradwire::bench

// Metrics as files that node_exporter collects: one a rank, whole at any time.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "export/aggregate.hpp"
#include "observe/collector.hpp"

namespace gradwire::metrics {

/// Writes `text` under another name of the directory and renames it: who reads the file gets the old or the new one,
/// whenever this process is killed. Others may read it, as far as the umask allows. Error(invalid_argument) that names
/// the file and why.
void write_whole(const std::filesystem::path& directory, const std::string& name, const std::string& text);

/// Removes what a killed process left of `name` in the middle of write_whole; what is younger than a minute may be
/// another's that is alive.
void clear_leftovers(const std::filesystem::path& directory, const std::string& name);

struct TextfileOptions {
  std::filesystem::path directory;  // made where it is not there
  std::string part = "library";     // what of gradwire writes: "library", "mpi", "nccl", "torch"
  std::chrono::nanoseconds interval = std::chrono::seconds(5);
  /// This process's rank, where that is known better than from its first session: none yet, or none ever.
  std::function<std::optional<int>()> rank = {};
  std::function<std::vector<ReplacedCalls>()> replaced = {};
  std::function<void(const std::string&)> warn;
};

/// "gradwire-mpi-rank-3.prom"
[[nodiscard]] std::string file_name(const std::string& part, int rank);

/// What cannot be written is told once, and tried again at the next turn.
class TextfileSink final : public observe::Sink {
 public:
  explicit TextfileSink(TextfileOptions options);
  void take(const observe::Round& round) override;

 private:
  void write(const observe::Round& round);

  TextfileOptions options_;
  Aggregate aggregate_;
  std::optional<std::uint64_t> next_;  // CLOCK_MONOTONIC, ns
  bool warned_ = false;
  std::set<int> cleared_;  // ranks: of what a killed process left
};

}  // namespace gradwire::metrics

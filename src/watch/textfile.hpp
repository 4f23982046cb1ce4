// Metrics as files that node_exporter collects: one a rank, complete at any time.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "watch/totals.hpp"
#include "watch/whole_file.hpp"

namespace gradwire::watch {

struct TextfileOptions {
  std::filesystem::path directory;  // made where it is missing
  std::chrono::nanoseconds interval = std::chrono::seconds(5);
  std::function<void(const std::string&)> warn;
};

/// "gradwire-mpi-rank-3-job-resnet.prom" for the suffix ".prom"; without a name of the job "gradwire-mpi-rank-3.prom".
[[nodiscard]] std::string rank_file_name(const std::string& part, int rank, const std::string& job,
                                         std::string_view suffix);
/// Whether rank_file_name() can give that name with the suffix.
[[nodiscard]] bool is_rank_file(std::string_view name, std::string_view suffix);
[[nodiscard]] std::string file_name(const std::string& part, int rank, const std::string& job = {});

/// Removes textfiles that ranks of this user on this host left there and that were not written for a day. They would be
/// scraped for ever. Files of earlier versions, which do not name their host, and all other files stay.
void remove_old_textfiles(const std::filesystem::path& directory, const std::string& host);

/// Decides when to write: at intervals, and at the end.
class Turns {
 public:
  explicit Turns(std::chrono::nanoseconds interval) : interval_(static_cast<std::uint64_t>(interval.count())) {}
  /// Whether to write now; if so, the next time is an interval later. Never true before a rank is known.
  [[nodiscard]] bool is_due(const Totals& totals);

 private:
  std::uint64_t interval_;
  std::optional<std::uint64_t> next_;  // CLOCK_MONOTONIC, ns
};

/// A failed write is reported once, and tried again at the next turn. Removes old textfiles before its first one.
class TextfileWriter final : public Subscriber {
 public:
  explicit TextfileWriter(const TextfileOptions& options);
  void take(Totals& totals) override;

 private:
  RankFiles files_;
  Turns turns_;
  bool removed_old_ = false;
};

}  // namespace gradwire::watch

// Histories as files that `gradwire report` reads: one a rank, complete at any time.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "watch/history.hpp"
#include "watch/totals.hpp"
#include "watch/whole_file.hpp"

namespace gradwire::watch {

struct HistoryOptions {
  std::filesystem::path directory;          // made where it is missing
  HistoryHead head = {};                    // without the rank and the fields that change
  std::optional<std::uint64_t> begun = {};  // CLOCK_MONOTONIC, ns; none: the first round
  bool quiet_without_calls = false;         // says nothing for a drop-in that saw no call
  std::function<void(const std::string&)> warn = {};
  std::function<void(const std::string&)> tell = {};  // called once, at the end of rank 0
};

/// The head for this process: its host, its command line, gradwire's variables, the present time.
[[nodiscard]] HistoryHead head_of_process(const std::string& part, const std::string& job = {});

/// As file_name() with ".history" at its end.
[[nodiscard]] std::string history_name(const std::string& part, int rank, const std::string& job = {});

/// Writes every second at first, and less often the longer a job runs. A failed write is reported once, and tried again
/// at the next turn.
class HistoryWriter final : public Subscriber {
 public:
  explicit HistoryWriter(HistoryOptions options);
  void take(Totals& totals) override;

 private:
  void write(double time, bool last);

  HistoryOptions options_;
  RankFiles files_;
  std::map<int, History> ranks_;
  double next_ = 0;  // when to write next, in seconds since the beginning
};

}  // namespace gradwire::watch

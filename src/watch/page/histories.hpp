// The histories that ranks left in a folder (GRADWIRE_REPORT), and which of them belong to one job.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/statistics.hpp"

namespace gradwire::watch::page {

using Column = std::vector<double>;  // a value for each sample; NaN: none

struct GroupHistory {
  std::string name;
  std::string codec;
  std::string algorithm;
  std::string sync;
  Column in_use;  // indices into RankHistory::codecs
  std::map<std::string, Column, std::less<>> columns;
};

struct ReplacedRow {
  std::string function;
  std::string reason;  // why the calls were passed on; empty: they were compressed
  double calls = 0;
  double bytes_in = 0;
  double bytes_sent = 0;
  double bytes_dense = 0;
  double seconds = 0;
};

/// Messages that a rank sent, of one range of sizes.
struct MessageRow {
  double up_to = 0;  // the largest size, in bytes; infinite: the range of the largest messages
  double count = 0;
  double bytes = 0;
  double seconds = 0;  // from the send until the other side had taken it, summed over messages
};

struct RankHistory {
  std::string file = {};  // its name
  std::string job = {};   // its name; empty in histories of versions whose jobs have none
  std::string part = {};
  int rank = 0;
  int world = 1;
  std::string version = {};
  std::string transport = {};
  std::string host = {};
  std::vector<std::string> command = {};
  std::map<std::string, std::string> environment = {};
  double started = 0;  // seconds since 1970
  double written = 0;
  bool ended = false;  // whether the process ended by itself
  std::vector<std::string> codecs = {};
  std::vector<std::string> causes = {};
  std::vector<CodecSwitch> switches = {};
  std::vector<ReplacedRow> replaced = {};
  std::vector<MessageRow> messages = {};
  Column time = {};  // seconds since `started`, rising
  std::map<std::string, Column, std::less<>> columns = {};
  std::vector<GroupHistory> groups = {};
  std::map<std::string, Column, std::less<>> gauges = {};

  /// The last value of a column; 0 where there is none.
  [[nodiscard]] double last(std::string_view column) const;
};

/// Parses a history; Error(corrupt), which names the file, where it is incomplete or no history.
[[nodiscard]] RankHistory parse_history(const std::string& text, const std::string& file);

/// The histories of a job, in the order of ranks; one for each rank.
struct Job {
  std::vector<RankHistory> ranks;
  std::vector<std::string> notes;  // which files were left out and why, and which are missing
};
/// The job `named`, or the one that began last. A pure function. `notes`: about files that could not be read.
/// Error(invalid_argument) where there is no history, or none of that job.
[[nodiscard]] Job newest_job(std::vector<RankHistory> histories, std::vector<std::string> notes,
                             const std::string& folder, const std::optional<std::string>& named = std::nullopt);

/// Reads that job; Error(invalid_argument), which names the folder, where it is missing or has no readable history.
[[nodiscard]] Job read_job(const std::filesystem::path& folder, const std::optional<std::string>& named = std::nullopt);

}  // namespace gradwire::watch::page

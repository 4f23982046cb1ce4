// The histories that ranks left in a folder (GRADWIRE_REPORT), and which of them are of one job.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/statistics.hpp"

namespace gradwire::watch::page {

using Column = std::vector<double>;  // a value a sample; NaN: it had none

struct GroupHistory {
  std::string name;
  std::string codec;
  std::string algorithm;
  std::string sync;
  Column in_use;  // indices of RankHistory::codecs
  std::map<std::string, Column, std::less<>> columns;
};

struct ReplacedRow {
  std::string function;
  std::string reason;  // why it was passed on; empty: it was compressed
  double calls = 0;
  double bytes_in = 0;
  double bytes_sent = 0;
  double bytes_dense = 0;
  double seconds = 0;
};

struct RankHistory {
  std::string file = {};  // its name
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
  bool ended = false;  // by itself
  std::vector<std::string> codecs = {};
  std::vector<std::string> causes = {};
  std::vector<CodecSwitch> switches = {};
  std::vector<ReplacedRow> replaced = {};
  Column time = {};  // seconds since `started`, rising
  std::map<std::string, Column, std::less<>> columns = {};
  std::vector<GroupHistory> groups = {};
  std::map<std::string, Column, std::less<>> gauges = {};

  /// The last value; 0 where there is none.
  [[nodiscard]] double last(std::string_view column) const;
};

/// Error(corrupt) that names the file for what is not whole or no history.
[[nodiscard]] RankHistory parse_history(const std::string& text, const std::string& file);

/// Those of the newest job, by rank; one a rank.
struct Job {
  std::vector<RankHistory> ranks;
  std::vector<std::string> notes;  // what was left out and why, what is missing
};
/// Pure. `notes`: of what could not be read. Error(invalid_argument) where there is none.
[[nodiscard]] Job newest_job(std::vector<RankHistory> histories, std::vector<std::string> notes,
                             const std::string& folder);

/// Error(invalid_argument) that names the folder where it is not there or holds no history that can be read.
[[nodiscard]] Job read_job(const std::filesystem::path& folder);

}  // namespace gradwire::watch::page

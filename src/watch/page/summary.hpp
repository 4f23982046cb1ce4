// The numbers of a job that a page shows, computed from its ranks' histories. Pure functions.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "watch/page/histories.hpp"

namespace gradwire::watch::page {

/// A rank's step (or, of a job without steps, a second of it) in seconds.
struct Split {
  double step = 0;     // compute + exposed
  double compute = 0;  // the time without exposed communication; hidden communication may run in it
  double exposed = 0;  // time inside finish(); for a drop-in inside calls
  double encode = 0;   // these are parts of communication, exposed or not
  double reduce = 0;
  double decode = 0;
  double native = 0;
  double wait = 0;
};

/// Values over time, one for each of Summary::times; NaN: none. The worst and the best tenth of ranks lie outside.
struct Band {
  Column low;
  Column median;
  Column high;
};

struct GroupRow {
  std::string name;
  std::string codec;
  std::string algorithm;
  std::string sync;
  double calls = 0;  // of one rank; all other numbers are of all ranks
  double bytes_in = 0;
  double bytes_sent = 0;
  double bytes_uncompressed = 0;
  double encode_seconds = 0;
  double decode_seconds = 0;
  double wire_seconds = 0;
  double nonfinite_frames = 0;
  [[nodiscard]] double ratio() const { return bytes_sent > 0 ? bytes_uncompressed / bytes_sent : 1; }
};

struct RankSummary {
  int rank = 0;
  std::string host;
  std::string state;  // "ended" by itself, "running" at its last write, "silent" while others went on
  double steps = 0;
  Split split;
  double exposed_share = 0;
  double wait_share = 0;
  double bytes_sent = 0;
  double sending_rate = -1;   // bytes a second while a message was on its way; -1: nothing was sent
  double sending_share = 0;   // share of the time with a message on its way
  double last_arrivals = -1;  // share of lanes with its frame last, as ranks agreed; -1: not known
  double slow_share = 0;      // share of the time in which others waited for it, as ranks agreed
  std::string cause;          // the cause in that time, or by find_slow_ranks()
  bool is_judged = false;     // whether ranks agreed that it is slow, or that it is not
  double waited_for = 0;      // share of a step by which the median of the others waits longer
  double errors = 0;
  double last_seen = 0;  // seconds since the job's start

  [[nodiscard]] bool is_slow() const { return !cause.empty(); }
};

/// The codec that a group used, from one time to another.
struct CodecSpan {
  std::size_t group = 0;  // index into Summary::groups
  double from = 0;
  double to = 0;
  std::string codec;
};

/// The beginning of the names of gauges that a job told its session, such as "gradwire_note loss".
inline constexpr std::string_view kNote = "gradwire_note ";

struct Summary {
  std::string job;  // its name; empty: none
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::string version;
  std::string transport;
  std::string part;
  std::vector<std::string> hosts;
  double started = 0;  // seconds since 1970
  double seconds = 0;
  int world = 1;
  bool has_steps = false;  // false: a Split covers a second
  double steps = 0;

  Split split;            // mean of the ranks
  double bytes_sent = 0;  // of sessions, communicators and tables, and of all calls that a drop-in saw
  double bytes_uncompressed = 0;
  double calls = 0;  // that a drop-in saw, of all ranks
  double compressed_calls = 0;
  double bytes_sent_a_step = 0;  // of a rank
  double nonfinite_frames = 0;
  double observer_share = 0;  // share of a core's time
  double pulls = 0;
  double pull_seconds = 0;
  double pushes = 0;
  double push_seconds = 0;
  [[nodiscard]] double exposed_share() const { return split.step > 0 ? split.exposed / split.step : 0; }
  [[nodiscard]] double wait_share() const { return split.step > 0 ? split.wait / split.step : 0; }
  [[nodiscard]] double ratio() const { return bytes_sent > 0 ? bytes_uncompressed / bytes_sent : 1; }

  std::vector<double> times;  // the ends of equal spans, in seconds since the start
  std::vector<double> step_numbers;
  std::map<std::string, Column> means;  // parts of a Split over time, mean of the ranks
  std::map<std::string, Band> bands;    // "step", "wait_share", "sent", "sent_rate", "ratio", ...
  Column nonfinite;                     // frames, of all ranks
  std::map<std::string, Band> gauges;   // errors, residuals: by name
  std::vector<GroupRow> groups;
  std::vector<CodecSpan> codecs;
  std::vector<CodecSwitch> switches;
  std::vector<RankSummary> ranks;
  std::vector<ReplacedRow> replaced;  // most bytes first
  std::vector<MessageRow> messages;   // smallest first
  std::vector<std::string> notes;
  std::vector<std::string> advice;
};

/// The summary without the advice.
[[nodiscard]] Summary summarize(const Job& job);

/// Sentences of advice that the numbers support, most important first.
[[nodiscard]] std::vector<std::string> advice(const Summary& summary);

/// Finds ranks that others wait for from how long each rank waits, if ranks did not agree on it themselves. Sets
/// waited_for and cause.
void find_slow_ranks(Summary& summary);

[[nodiscard]] nlohmann::ordered_json to_json(const Summary& summary);

}  // namespace gradwire::watch::page

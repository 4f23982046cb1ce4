// A running job as `gradwire top` shows it: rows made of the files that were read, drawn as lines. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "watch/live/snapshot.hpp"

namespace gradwire::watch::live {

struct SkippedFile {
  std::string name;
  std::string reason;
};

struct OtherJob {
  std::string name;
  bool runs = false;
};

/// A file that was not written for so long is of a rank that is silent: three turns of 5 s.
inline constexpr double kSilentSeconds = 15;

/// The content of the folder at one moment.
struct FolderSnapshot {
  double time = 0;  // in seconds since 1970
  std::vector<RankValues> ranks;
  std::vector<SkippedFile> skipped;
  std::string problem;                    // a problem of the folder as a whole; empty: none
  std::string job = {};                   // the job of the ranks, once choose_job() was called
  std::vector<OtherJob> other_jobs = {};  // those whose ranks were left out, by name
};

enum class RankState : std::uint8_t {
  running,
  slow,     // the others wait for it
  stalled,  // it writes its file, and no step ends
  silent,   // its file is old, though it should be written every 5 s
  ended,
};

struct RankRow {
  RankValues now;
  Rates rates;
  double age = 0;  // age of its file, in seconds
  RankState state = RankState::running;
};

/// Leaves the ranks of one job: of `named`, if that is given. Otherwise of `shown`, the job that was shown before,
/// as long as it runs or no job does; else of the one that runs, or ran, last. A job that is not there is a problem.
void choose_job(FolderSnapshot& snapshot, const std::optional<std::string>& named,
                const std::optional<std::string>& shown);
/// The job that comes after the one that is shown, by name; after the last one the first.
[[nodiscard]] std::string next_job(const FolderSnapshot& snapshot);

/// Marks the slow ones among the ranks that run, as observe::waited_for() judges them.
void mark_slow(std::span<RankRow> rows);

/// Rows by part and rank. `history` has taken the snapshot.
[[nodiscard]] std::vector<RankRow> rows_of(const FolderSnapshot& snapshot, const RateTracker& history);

enum class Emphasis : std::uint8_t { none, head, strong, weak };

struct StyledLine {
  std::string text;  // printable ASCII
  Emphasis emphasis = Emphasis::none;
};

struct DrawOptions {
  std::string folder;
  std::size_t width = 80;
  std::size_t height = 0;  // 0: no limit
  bool keys = false;       // whether to show the keys that there are
};

/// Draws the view. No line is longer than the width, and there are at most as many lines as the height.
[[nodiscard]] std::vector<StyledLine> draw(const FolderSnapshot& snapshot, std::span<const RankRow> rows,
                                           const DrawOptions& options);

}  // namespace gradwire::watch::live

// The messages of `gradwire run` when the command has ended.
#pragma once

#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/preload.hpp"
#include "cli/registration_worlds.hpp"
#include "cli/report_file.hpp"

namespace gradwire::cli {

/// The facts about a command that are known before it starts.
struct KnownCommand {
  std::vector<std::string> words;
  std::optional<std::size_t> launcher = std::nullopt;       // index of mpirun, whose ranks all have one MPI
  std::optional<Library> mpi = std::nullopt;                // that MPI
  std::optional<std::filesystem::path> job = std::nullopt;  // the program, or the script
  bool compresses = false;                                  // a codec or a policy was named, and it is no dry run
};

/// How the ranks of a job that goes on when ranks end have ended, and the status of the job: if the command ended with
/// 0, though no rank did, it is not 0. None: the command ran no such job, as far as `seen` says.
struct RankOutcome {
  int status = 0;
  std::string text;  // "of 3 processes 2 ended with 82 (fewer than min_ranks were left), ..."
};
[[nodiscard]] std::optional<RankOutcome> outcome_of_ranks(const SeenRanks& seen, int status, bool others_may_join);

/// Prints the tables of the reports that are there, with remarks, or why there is none. `seen`: what the ranks have
/// registered; none: they were not asked to.
void tell_outcome(const ReportFile& file, const KnownCommand& command, const std::optional<SeenRanks>& seen, int status,
                  std::ostream& out);
/// The reason why a job that ended well has left no report.
[[nodiscard]] std::string why_no_report(const ReportFile& report, const KnownCommand& command,
                                        const std::optional<SeenRanks>& seen);
/// For a run that failed: "its ranks had told of 12 steps", or an empty text.
[[nodiscard]] std::string steps_of(const ReportFile& report);
/// Makes the page, however the job ended.
void make_page(const std::filesystem::path& folder, std::ostream& out);

}  // namespace gradwire::cli

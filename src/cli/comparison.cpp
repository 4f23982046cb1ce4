#include "cli/comparison.hpp"

#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/emulated_link.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

constexpr const char* kOfSessions =
    "the job's own session compressed in both runs as its policy says, since only the drop-in can be left out; to see "
    "what the session saves, run the job with the policy exact.toml and with yours, both under gradwire run --link "
    "without a codec\n";

std::string ratio(double without, double with) { return with > 0 ? format_number(without / with, 3) : "-"; }

}  // namespace

Stopwatch::Stopwatch() : started_(std::chrono::steady_clock::now()), loopback_bytes_(bytes_over_loopback()) {}

MeasuredRun Stopwatch::stop(int status) const {
  return {.status = status,
          .time = std::chrono::steady_clock::now() - started_,
          .loopback_bytes = bytes_over_loopback() - loopback_bytes_};
}

void check_comparison(const RunOptions& options) {
  const auto refuse = [](const std::string& what) { throw Error(ErrorCode::invalid_argument, "--compare " + what); };
  if (!options.codec && !options.policy && !environment("GRADWIRE_CODEC") && !environment("GRADWIRE_POLICY")) {
    refuse(
        "needs a codec or a policy, since a job that is only observed sends what it sends without gradwire; add "
        "--codec auto");
  }
  if (options.dry_run || environment_flag("GRADWIRE_DRY_RUN")) {
    refuse("and a dry run exclude each other: a dry run compresses nothing");
  }
  if (environment_flag("GRADWIRE_DISABLE")) {
    refuse("has nothing to compare while GRADWIRE_DISABLE is 1; unset it");
  }
  if (options.join || options.let_join || options.restarts > 0) {
    refuse("runs a whole job twice; leave out " + std::string(options.join       ? "--join"
                                                              : options.let_join ? "--let-join"
                                                                                 : "--restarts"));
  }
}

int compare(const std::function<MeasuredRun(bool without)>& run, const std::optional<std::string>& link,
            std::ostream& out) {
  out << "gradwire: --compare runs the job twice, first without gradwire, then with it; files that it writes are "
         "written twice"
      << std::endl;
  const MeasuredRun without = run(true);
  if (without.status != 0) {
    out << "gradwire: the job ended with status " << without.status
        << " without gradwire, so there is nothing to compare\n";
    return without.status;
  }
  out << "gradwire: without gradwire the job took " << format_number(seconds(without.time), 3)
      << " s; now it runs with it" << std::endl;
  const MeasuredRun with = run(false);
  if (with.status != 0) {
    return with.status;
  }
  const std::uint64_t before = link ? without.loopback_bytes : with.dense_bytes;
  const std::uint64_t after = link ? with.loopback_bytes : with.sent_bytes;
  const std::string place = link ? "bytes over the emulated link" : "bytes of large sums";
  const std::string what = with.has_session ? "the drop-in" : "gradwire";
  std::vector<std::vector<std::string>> rows{
      {"", "time", place},
      {"without " + what, format_number(seconds(without.time), 3) + " s", format_bytes(before)},
      {"with " + what, format_number(seconds(with.time), 3) + " s", format_bytes(after)}};
  if (with.compressed_calls != 0) {
    rows.push_back({"ratio", ratio(seconds(without.time), seconds(with.time)),
                    ratio(static_cast<double>(before), static_cast<double>(after))});
  }
  out << '\n' << text::table(rows, "lrr");
  if (with.has_session) {
    out << kOfSessions;
  }
  if (with.compressed_calls == 0) {
    out << "the drop-in compressed no call, so a difference in time is noise\n";
  }
  if (link) {
    out << "emulated link: " << *link << ", shared by all ranks; times are of the whole command, with its start\n";
  } else {
    out << "bytes: what the calls that gradwire handles send uncompressed, and what they sent; times are of the whole "
           "command, with its start\n";
  }
  return 0;
}

}  // namespace gradwire::cli

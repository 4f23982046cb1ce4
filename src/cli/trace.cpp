// gradwire trace: the activities of a job's ranks, as a timeline and in numbers.
#include <algorithm>
#include <iostream>
#include <ostream>
#include <sstream>

#include "base/durable_file.hpp"
#include "base/regular_file.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "gradwire/error.hpp"
#include "watch/event_file.hpp"
#include "watch/timeline/critical_path.hpp"
#include "watch/timeline/layout.hpp"
#include "watch/timeline/summary.hpp"
#include "watch/timeline/trace_file.hpp"

namespace gradwire::cli {

namespace timeline = watch::timeline;

namespace {

timeline::StepRange steps_of(const TraceOptions& options) {
  if (!options.steps) {
    return {};
  }
  try {
    const watch::TraceTarget target = watch::TraceTarget::parse("trace:steps=" + *options.steps);
    return {target.first_step, target.last_step};
  } catch (const Error&) {
    throw Error(ErrorCode::invalid_argument,
                "trace: --steps " + *options.steps + "; write two numbers, such as 100-120");
  }
}

timeline::Read read(const TraceOptions& options, bool end_before, std::ostream& told) {
  timeline::StepRange steps = steps_of(options);
  steps.end_before = end_before;
  timeline::Read read;
  read.folder = options.folder;
  read.recording = timeline::read_recording(options.folder, steps);
  read.matching = timeline::match(read.recording);
  read.alignment = timeline::align(read.recording, read.matching);
  for (const std::string& warning : read.recording.warnings) {
    told << "gradwire: trace: " << text::printable(warning) << '\n';
  }
  if (read.matching.lonely > 0) {
    told << "gradwire: trace: " << read.matching.lonely
         << " sends and receives have no other end in these files: of ranks or steps that are not in them\n";
  }
  if (read.matching.foreign > 0) {
    told << "gradwire: trace: " << read.matching.foreign
         << " sends and receives are of communicators of some of the ranks; they have no arrows\n";
  }
  return read;
}

// Prints the summary as text. Names of hosts come from files of others.
void write_text(const timeline::Read& what, const std::vector<timeline::StreamPaths>& paths, std::ostream& out) {
  std::ostringstream text;
  timeline::write_summary(what, paths, text);
  out << text::printable_lines(text.str());
}

// Refuses to replace a file of another program or of a rank, which would be lost.
void refuse_to_replace(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(file, ignored))) {
    return;  // the target of a link is not lost
  }
  if (timeline::is_event_file(file.filename().string())) {
    throw Error(ErrorCode::invalid_argument, "trace merge: " + file.string() +
                                                 " has the name of what a rank recorded, and would be lost; name "
                                                 "another file with --output");
  }
  constexpr std::size_t kHead = 2048;
  std::string head(kHead, '\0');
  RegularFile there(file, "trace");
  head.resize(there.read(head.data(), head.size()));
  if (!head.empty() && head.find(timeline::kTraceMark) == std::string::npos) {
    throw Error(ErrorCode::invalid_argument, "trace merge: " + file.string() +
                                                 " was not made by gradwire trace merge, and would be lost; move it "
                                                 "away, or name another file with --output");
  }
}

void refuse_empty_selection(const timeline::Recording& recording, const TraceOptions& options) {
  const auto has_step = [](const timeline::Activity& each) { return watch::has_step(each.kind); };
  const bool any = std::any_of(recording.ranks.begin(), recording.ranks.end(), [&](const timeline::RankLog& log) {
    return std::any_of(log.activities.begin(), log.activities.end(), has_step);
  });
  if (options.steps && !any) {
    throw Error(ErrorCode::invalid_argument,
                "trace merge: " + options.folder + " has nothing of steps " + *options.steps +
                    "; gradwire trace summary without --steps shows how many steps there are");
  }
}

}  // namespace

int trace_merge(const TraceOptions& options, std::ostream& out) {
  if (!timeline::can_write_traces()) {
    timeline::write_trace({}, {}, {}, out);  // throws the error that says why
  }
  const std::filesystem::path file =
      options.output ? std::filesystem::path(*options.output) : std::filesystem::path(options.folder) / "trace.pftrace";
  refuse_to_replace(file);
  const timeline::Read what = read(options, false, std::cerr);
  refuse_empty_selection(what.recording, options);
  try {
    write_report_file(file, [&](std::ostream& to) {
      timeline::write_trace(what.recording, what.alignment, timeline::lay_out(what.recording, what.matching), to);
    });
  } catch (const Error& error) {
    throw Error(error.code(), "trace merge: " + std::string(error.what()) + "; name another file with --output");
  }
  out << "wrote " << file.string() << ": " << what.recording.ranks.size() << " ranks, " << what.matching.messages.size()
      << " messages; open it in https://ui.perfetto.dev\n";
  return 0;
}

int trace_summary(const TraceOptions& options, std::ostream& out) {
  const timeline::Read what = read(options, true, std::cerr);
  const auto paths = timeline::critical_paths(what.recording, what.matching);
  if (paths.empty()) {
    throw Error(ErrorCode::invalid_argument, "trace summary: " + options.folder + " has no step or call that ended" +
                                                 (options.steps ? " among steps " + *options.steps : std::string()) +
                                                 "; trace merge shows what there is");
  }
  options.json ? timeline::write_summary_json(what, paths, out) : write_text(what, paths, out);
  return 0;
}

}  // namespace gradwire::cli

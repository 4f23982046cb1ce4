// gradwire report: makes a page of a job from its ranks' histories, or prints the table of its replaced calls.
#include <ostream>

#include "base/job_name.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/report.hpp"
#include "gradwire/error.hpp"
#include "watch/page/comparison.hpp"
#include "watch/page/page.hpp"

namespace gradwire::cli {

namespace page = watch::page;

namespace {

// Prints the table of a report of replaced calls.
int show_calls(const ReportOptions& options, std::ostream& out) {
  if (options.output || options.json || options.second || !options.jobs.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "report: " + options.folder +
                    " holds one job's calls, of which a table is printed and no page is made; "
                    "leave out --output, --json, --job and a second name, or name a directory of histories");
  }
  out << text::printable_lines(read_report(options.folder).text);
  return 0;
}

std::optional<std::string> name_of(const ReportOptions& options, std::size_t run) {
  return run < options.jobs.size() ? std::optional(as_job_name(options.jobs[run])) : std::nullopt;
}

void tell_files(const page::PageFiles& files, std::ostream& out) {
  out << "page: " << text::printable(files.html.string()) << "\nnumbers: " << text::printable(files.json.string())
      << '\n';
}

}  // namespace

int report(const ReportOptions& options, std::ostream& out) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  if (options.folder.ends_with(".json") && !fs::is_directory(options.folder, unknown)) {
    return show_calls(options, out);
  }
  if (options.jobs.size() > 2) {
    throw Error(ErrorCode::invalid_argument, "report: --job is given " + std::to_string(options.jobs.size()) +
                                                 " times; a page shows one job, or compares two");
  }
  const bool compares = options.second || options.jobs.size() == 2;
  const fs::path second = options.second.value_or(options.folder);
  const fs::path html = options.output ? fs::path(*options.output)
                        : compares     ? second / "comparison.html"
                                       : fs::path(options.folder) / "report.html";
  if (html.extension() == ".json") {
    throw Error(ErrorCode::invalid_argument, "report: --output names " + html.string() +
                                                 "; give the page a name such as report.html, and name the "
                                                 "JSON by --json");
  }
  if (html == "-" || options.json == "-") {
    throw Error(ErrorCode::invalid_argument,
                "report: - is no file; the page and its numbers go to files: name them by --output and --json");
  }
  page::PageFiles files{.html = html, .json = html};
  if (options.json) {
    files.json = *options.json;
  } else {
    files.json.replace_extension(".json");
  }
  std::error_code ignored;
  if (fs::weakly_canonical(fs::absolute(files.html), ignored) ==
      fs::weakly_canonical(fs::absolute(files.json), ignored)) {
    throw Error(ErrorCode::invalid_argument,
                "report: --output and --json both name " + files.html.string() + "; give each a file of its own");
  }
  if (compares) {
    const page::Json root =
        page::write_comparison({options.folder, name_of(options, 0)}, {second, name_of(options, 1)}, files);
    for (const std::string& note : page::comparison_notes(root)) {
      out << "note: " << text::printable(note) << '\n';
    }
    tell_files(files, out);
    return 0;
  }
  const page::Summary summary = page::write_page(options.folder, files, name_of(options, 0));
  for (const std::string& sentence : summary.advice) {
    out << text::printable(sentence) << '\n';
  }
  for (const std::string& note : summary.notes) {
    out << "note: " << text::printable(note) << '\n';
  }
  tell_files(files, out);
  return 0;
}

}  // namespace gradwire::cli

// gradwire report: makes a page of a job from its ranks' histories, or prints the table of its replaced calls.
#include <ostream>

#include "base/job_name.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/report.hpp"
#include "gradwire/error.hpp"
#include "watch/page/page.hpp"

namespace gradwire::cli {

namespace page = watch::page;

namespace {

// Prints the table of a report of replaced calls.
int show_calls(const ReportOptions& options, std::ostream& out) {
  if (options.output || options.json || options.job) {
    throw Error(ErrorCode::invalid_argument,
                "report: " + options.folder +
                    " holds one job's calls, of which a table is printed and no page is made; "
                    "leave out --output, --json and --job, or name a directory of histories");
  }
  out << text::printable_lines(read_report(options.folder).text);
  return 0;
}

}  // namespace

int report(const ReportOptions& options, std::ostream& out) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  if (options.folder.ends_with(".json") && !fs::is_directory(options.folder, unknown)) {
    return show_calls(options, out);
  }
  const fs::path html = options.output ? fs::path(*options.output) : fs::path(options.folder) / "report.html";
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
  const page::Summary summary =
      page::write_page(options.folder, files, options.job ? std::optional(as_job_name(*options.job)) : std::nullopt);
  for (const std::string& sentence : summary.advice) {
    out << text::printable(sentence) << '\n';
  }
  for (const std::string& note : summary.notes) {
    out << "note: " << text::printable(note) << '\n';
  }
  out << "page: " << text::printable(files.html.string()) << "\nnumbers: " << text::printable(files.json.string())
      << '\n';
  return 0;
}

}  // namespace gradwire::cli

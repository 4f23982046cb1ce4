// gradwire report: a page of a job, from what its ranks left.
#include <ostream>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/page/page.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {

int report(const ReportOptions& options, std::ostream& out) {
  namespace fs = std::filesystem;
  const fs::path html = options.output ? fs::path(*options.output) : fs::path(options.folder) / "report.html";
  if (html.extension() == ".json") {
    throw Error(ErrorCode::invalid_argument, "report: --output names " + html.string() +
                                                 "; give the page a name such as report.html, and name the "
                                                 "JSON by --json");
  }
  page::PageFiles files{.html = html, .json = html};
  if (options.json) {
    files.json = *options.json;
  } else {
    files.json.replace_extension(".json");
  }
  const page::Summary summary = page::write_page(options.folder, files);
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

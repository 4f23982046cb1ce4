// bench_records finds how few bits train as well as dense training. `next` prints the command line of char_lm for the
// next training, one argument per line; without it, the program writes the table and the plot of the trainings made so
// far.
#include <cstdio>
#include <string>

#include "bench/records/campaign.hpp"
#include "bench/records/report.hpp"
#include "bench/support/command_line.hpp"

namespace gradwire::records {
namespace {

constexpr int kNothingLeft = 3;

struct Options {
  Settings settings;
  std::string mode = "report", json, markdown, svg;
};

Options parse(int argc, char** argv) {
  Options options;
  bench::CommandLine line(
      "How few bits train as well as dense training does: char_lm with several policies, rates and seeds. Prints the "
      "table of the trainings that were made; with \"next\" the arguments of the next one, a line each, and exits with "
      "3 where none is left.");
  line.option("mode", options.mode, "report or next").one_of({"report", "next"});
  line.option("--folder", options.settings.folder, "Where char_lm's files are").required();
  line.option("--steps", options.settings.steps, "Of a training").range(2, 1'000'000);
  line.option("--seeds", options.settings.seeds, "At most").range(1, 100);
  line.option("--only", options.settings.only, "Rows by name (default: all)");
  line.option("--json", options.json, "Write every row to this file");
  line.option("--markdown", options.markdown, "Write the table to this file");
  line.option("--svg", options.svg, "Write the plot to this file");
  line.parse(argc, argv);
  return options;
}

int print_next(const Campaign& campaign) {
  const auto run = campaign.next();
  if (!run) {
    return kNothingLeft;
  }
  const Campaign::Count count = campaign.count();
  std::fprintf(stderr, "training %d of %d: %s\n", count.made + 1, count.all, run->file().c_str());
  for (const std::string& argument : campaign.arguments(*run)) {
    std::printf("%s\n", argument.c_str());
  }
  return 0;
}

int run(const Options& options) {
  const Campaign campaign(options.settings);
  if (options.mode == "next") {
    return print_next(campaign);
  }
  const std::string head = describe(campaign);
  const bench::TextTable table = make_table(campaign);
  std::printf("bench_records: %s\n%s", head.c_str(), table.to_text().c_str());
  if (!options.json.empty()) {
    bench::write_report(options.json, make_json(campaign));
  }
  if (!options.markdown.empty()) {
    bench::write_text(options.markdown, bench::to_document(head, table));
  }
  if (!options.svg.empty()) {
    bench::write_text(options.svg, plot(campaign));
  }
  return 0;
}

}  // namespace
}  // namespace gradwire::records

int main(int argc, char** argv) {
  return gradwire::bench::program("bench_records",
                                  [&] { return gradwire::records::run(gradwire::records::parse(argc, argv)); });
}

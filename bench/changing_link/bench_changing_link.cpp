// bench_changing_link compares choices of codecs on a link that changes during a training loop: fixed codecs, auto,
// auto without patience, which follows every step, and a choice that knows the schedule.
#include <cstdio>
#include <string>

#include "bench/changing_link/comparison.hpp"
#include "bench/changing_link/options.hpp"
#include "bench/changing_link/report.hpp"
#include "bench/support/command_line.hpp"

namespace gradwire::changing_link {
namespace {

int run(const Options& options) {
  const Comparison comparison = compare(options);
  const std::string head = describe(comparison);
  const bench::TextTable table = make_table(comparison);
  std::printf("bench_changing_link: %s%s\n%s", head.c_str(),
              options.quick ? "--quick: too short to judge anything\n" : "", table.to_text().c_str());
  if (!options.json.empty()) {
    bench::Json report = make_json(comparison);
    report["quick"] = options.quick;
    bench::write_report(options.json, report);
  }
  if (!options.svg.empty()) {
    bench::write_text(options.svg, plot(comparison));
  }
  if (!options.markdown.empty()) {
    bench::write_text(options.markdown, bench::to_document(head, table));
  }
  return 0;
}

}  // namespace
}  // namespace gradwire::changing_link

int main(int argc, char** argv) {
  return gradwire::bench::program("bench_changing_link", [&] {
    return gradwire::changing_link::run(gradwire::changing_link::parse_options(argc, argv));
  });
}

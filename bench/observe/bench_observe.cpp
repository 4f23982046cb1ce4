// bench_observe measures the cost of observing a job.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "bench/observe/comparison_share.hpp"
#include "bench/observe/costs.hpp"
#include "bench/observe/step_share.hpp"
#include "bench/support/command_line.hpp"
#include "bench/support/report.hpp"
#include "bench/support/text_table.hpp"
#include "watch/event_file.hpp"
#include "watch/textfile.hpp"

namespace gradwire::bench {
namespace {

struct Options {
  std::string bytes = "25MB";
  std::vector<std::string> links{"", "1Gbit/s,50us"};
  StepOptions step;
  int rounds = 51;
  double compare_seconds = 10;
  std::string json;
  std::string markdown;
};

// Returns a sink that writes metrics as a job does.
std::shared_ptr<observe::Sink> metrics_sink(const std::filesystem::path& folder) {
  auto sink = std::make_shared<watch::TotalsSink>(observe::WatchedProcess{});
  sink->subscribe(std::make_unique<watch::TextfileWriter>(watch::TextfileOptions{
      .directory = folder, .warn = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }}));
  return sink;
}

// Returns a sink that writes all events of all steps as a job does.
std::shared_ptr<observe::Sink> trace_sink(const std::filesystem::path& folder) {
  watch::EventFileOptions options;
  options.target.directory = folder.string();
  options.warn = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); };
  return std::make_shared<watch::EventFileSink>(std::move(options));
}

class Rows {
 public:
  Rows() : table_({"what", "value", "unit"}), report_(make_report("gradwire.bench_observe.1")) {}
  void add(const std::string& what, double value, int digits, const std::string& unit) {
    table_.add({what, fixed(value, digits), unit});
    report_["rows"].push_back({{"what", what}, {"value", number_or_null(value)}, {"unit", unit}});
  }
  void tell(const Options& options) const {
    const std::string head = "What it costs to observe: " + std::to_string(options.step.ranks) + " ranks as threads, " +
                             options.bytes + " of gradients a step, " + options.step.codec + ".";
    publish(head, table_, {options.markdown, options.json}, report_);
  }

 private:
  TextTable table_;
  Json report_;
};

void measure_events(const Options& options, Rows& rows, double& span) {
  for (const observe::ClockKind clock : {observe::best_clock(), observe::ClockKind::monotonic}) {
    const EventCosts costs = event_costs(clock, options.rounds);
    const std::string by = " by " + std::string(to_string(clock));
    rows.add("an event that has no duration" + by, costs.moment, 1, "ns");
    rows.add("an event that has one" + by, costs.span, 1, "ns");
    span = clock == observe::best_clock() ? costs.span : span;
  }
  rows.add("a place while nobody reads", cost_when_off(options.rounds), 2, "ns");
}

void measure_loss(Rows& rows) {
  for (const double rate : {1e6, 4e6}) {
    const Loss loss = reader_loss(rate, 3);
    const std::string at = " of one thread at " + fixed(rate / 1e6, 0) + " million a second";
    rows.add("events lost" + at, static_cast<double>(loss.dropped), 0, "of " + std::to_string(loss.events));
    rows.add("CPU of the reader" + at, 100 * loss.reader_seconds / 3, 2, "% of a core");
  }
}

void measure_steps(Options options, Rows& rows, double span) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("gradwire-bench-observe-" + std::to_string(::getpid()));
  options.step.elements = parse_bytes(options.bytes) / sizeof(float);
  for (const std::string& link : options.links) {
    options.step.link = link;
    const std::string over = link.empty() ? ", memory" : ", " + link;
    for (const bool traces : {false, true}) {
      const StepShare share =
          step_share(options.step, [&] { return traces ? trace_sink(folder) : metrics_sink(folder); });
      const std::string what = traces ? "tracing" : "metrics";
      if (!traces) {
        rows.add("step without" + over, 1e3 * share.off_seconds, 2, "ms");
        rows.add("events of a step, a rank" + over, share.events / options.step.ranks, 0, "");
      }
      rows.add(what + ": CPU of the reader, a step" + over, 1e6 * share.reader_seconds, 1, "us");
      rows.add(what + ", accounted" + over, 100 * share.accounted(1e-9 * span, options.step.ranks), 3, "% of a step");
      rows.add(what + ", paired" + over, 100 * (share.on_ratio - 1), 1, "% of a step");
      rows.add(what + ": A/A, neighbours differ by" + over, 100 * share.off_ratio, 1, "%");
      rows.add(what + ": events lost" + over, static_cast<double>(share.dropped), 0, "");
    }
  }
  std::filesystem::remove_all(folder);
}

void measure_comparison(const Options& options, Rows& rows) {
  struct Case {
    std::string name;
    StepOptions step;
  };
  std::vector<Case> cases;
  for (const std::string& link : options.links) {
    StepOptions step = options.step;
    step.link = link;
    step.elements = parse_bytes(options.bytes) / sizeof(float);
    cases.push_back({link.empty() ? ", memory" : ", " + link, step});
  }
  cases.push_back({", 1 KiB, 2 ranks", {.ranks = 2, .elements = 256, .codec = "dense", .link = {}}});
  for (const Case& one : cases) {
    const ComparisonShare share = comparison_share(one.step, options.compare_seconds);
    rows.add("step" + one.name, 1e3 * share.step_seconds, 3, "ms");
    rows.add("comparisons of ranks" + one.name, share.comparisons, 0, "in " + fixed(share.steps, 0) + " steps");
    rows.add("one of them" + one.name, 1e6 * share.each_seconds, 1, "us");
    for (const auto& [what, seconds] : {std::pair{"comparison of ranks", share.comparing()},
                                        std::pair{"noting whom a rank waits for", share.noting()}}) {
      rows.add(what + (", accounted" + one.name), 1e6 * seconds, 4, "us a step");
      rows.add(what + (", accounted" + one.name), 100 * seconds / share.step_seconds, 4, "% of a step");
    }
  }
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line("What it costs to observe a job: an event, a reader, a step.");
  line.option("--bytes", options.bytes, "Gradients of a step");
  line.option("--ranks", options.step.ranks, "Threads that play ranks");
  line.option("--codec", options.step.codec, "How gradients travel");
  line.option("--blocks", options.step.blocks, "Blocks of steps that are observed");
  line.option("--seconds", options.step.seconds, "Of a block");
  line.option("--compare-seconds", options.compare_seconds, "Of steps after which ranks compare now and then");
  line.option("--json", options.json, "Write the rows to this file");
  line.option("--markdown", options.markdown, "Write the table to this file");
  line.parse(argc, argv);
  Rows rows;
  double span = 0;
  measure_events(options, rows, span);
  measure_loss(rows);
  measure_steps(options, rows, span);
  measure_comparison(options, rows);
  rows.tell(options);
  return 0;
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::program("bench_observe", [&] { return gradwire::bench::run(argc, argv); });
}

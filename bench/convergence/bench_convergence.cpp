// bench_convergence measures the effect of compression on training. It trains small classifiers whose workers hold
// sorted labels with each policy and several seeds, and shows the loss against uncompressed training with the same
// seed, the bytes sent, and accuracy on a test set.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "bench/convergence/experiments.hpp"
#include "bench/convergence/options.hpp"
#include "bench/convergence/report.hpp"
#include "bench/support/command_line.hpp"

namespace gradwire::convergence {
namespace {

int run(const Options& options) {
  const auto policies = load_policies(options.policies.empty() ? std::vector<std::string>{GRADWIRE_CONVERGENCE_POLICIES}
                                                               : options.policies);
  std::vector<Row> rows;
  for (const char* part : {"mlp", "large", "accuracy"}) {
    if (std::find(options.parts.begin(), options.parts.end(), part) != options.parts.end()) {
      auto more = run_part(part, policies, options);
      std::move(more.begin(), more.end(), std::back_inserter(rows));
    }
  }
  std::printf("bench_convergence: 8 ranks, %zu seeds%s\n%s", options.seeds,
              options.quick ? "; --quick: too short to judge anything" : "", to_text(rows, options.link).c_str());
  if (!options.json.empty()) {
    bench::Json report = bench::make_report("gradwire.bench_convergence.1");
    report["link"] = {{"text", options.link}, {"emulated", true}};
    report["quick"] = options.quick;
    for (const Row& row : rows) {
      report["rows"].push_back(to_json(row));
    }
    bench::write_report(options.json, report);
  }
  if (!options.svg.empty()) {
    bench::write_text(options.svg, plot(rows));
  }
  return 0;
}

}  // namespace
}  // namespace gradwire::convergence

int main(int argc, char** argv) {
  // Each of eight ranks would warn of topk without feedback in each run, but it is intended here.
  setenv("GRADWIRE_LOG", "error", 0);
  return gradwire::bench::program("bench_convergence", [&] {
    return gradwire::convergence::run(gradwire::convergence::parse_options(argc, argv));
  });
}

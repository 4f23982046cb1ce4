#include "bench/changing_link/options.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "bench/support/command_line.hpp"
#include "gradwire/codec_spec.hpp"
#include "gradwire/emulation.hpp"
#include "gradwire/error.hpp"
#include "policy/stage.hpp"

namespace gradwire::changing_link {
namespace {

void check_players(const Options& options) {
  std::vector<std::string> known{"dense", "clairvoyant", "clairvoyant again", "auto", "auto again", "greedy"};
  known.insert(known.end(), options.allow.begin(), options.allow.end());
  for (const std::string& name : options.players) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      std::string names;
      for (const std::string& one : known) {
        names += (names.empty() ? "" : ", ") + one;
      }
      throw Error(ErrorCode::invalid_argument, "--players: \"" + name + "\" is none of " + names);
    }
  }
}

void check(const Options& options) {
  try {
    (void)LinkSchedule::parse(options.link);
    (void)parse_duration(options.compute);
    (void)parse_bytes(options.bucket);
    std::vector<CodecSpec> allow;
    for (const std::string& codec : options.allow) {
      allow.push_back(CodecSpec::parse(codec));
    }
    policy::check_allowed(allow);
    check_players(options);
  } catch (const Error& error) {
    throw bench::CommandLineExit(2, std::string("bench_changing_link: ") + error.what() + "\n");
  }
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  bench::CommandLine line{
      "Plays a link that changes under a training loop, and compares codec = \"auto\" with each fixed codec, with a "
      "choice that knows the schedule, and with auto that follows every step. Ranks are threads."};
  const Options defaults;
  line.option("--link", options.link, "Schedule: links with an end, the last without; noise");
  line.option("--ranks", options.ranks, "Ranks").range(2, 64);
  line.option("--steps", options.steps, "Steps that each player must do").range(1, 1'000'000);
  line.option("--tensors", options.tensors, "Gradients of a step").range(1, 1000);
  line.option("--elements", options.elements, "Elements of each").range(1, 1 << 28);
  line.option("--compute", options.compute, "How long a backward pass takes");
  line.option("--bucket", options.bucket, "Bytes of a bucket");
  line.option("--allow", options.allow, "Codecs besides dense, best quality first");
  line.option("--players", options.players,
              "Which to run: dense and codecs, clairvoyant (needs them), auto, greedy, \"auto again\", "
              "\"clairvoyant again\" (all)");
  line.flag("--quick", options.quick, "A short schedule and few steps: whether it runs, not what it shows");
  line.option("--json", options.json, "Write every row, and the timeline, to this file");
  line.option("--svg", options.svg, "Write the timeline of bandwidth, codec and step time to this file");
  line.option("--markdown", options.markdown, "Write the table to this file, as Markdown");
  line.parse(argc, argv);
  if (options.quick) {
    options.steps = std::min<std::uint64_t>(options.steps, 20);
    options.elements = std::min<std::uint64_t>(options.elements, 16 << 10);
    options.compute = "2ms";
    options.link =
        options.link == defaults.link ? "50Mbit/s until 200ms, 1Gbit/s; noise 30% per 10ms seed 7" : options.link;
  }
  check(options);
  return options;
}

}  // namespace gradwire::changing_link

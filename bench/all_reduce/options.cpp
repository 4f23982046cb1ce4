#include "bench/all_reduce/options.hpp"

#include "base/units.hpp"
#include "bench/support/command_line.hpp"
#include "gradwire/codec_spec.hpp"
#include "gradwire/emulation.hpp"
#include "gradwire/error.hpp"
#include "gradwire/reduction.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::bench {
namespace {

void check(const Options& options) {
  const auto reject = [](const std::string& text) { throw CommandLineExit(2, "bench_all_reduce: " + text + "\n"); };
  if (options.baseline && !options.link.empty()) {
    reject(
        "--baseline cannot be combined with --link: MPI and Gloo would not go through the emulated link, and the "
        "comparison would mean nothing; drop one of them, or run on a real slow link with bench/lab/lab");
  }
  if (options.min_bytes < 4 || options.max_bytes < options.min_bytes) {
    reject("--min-bytes must be at least 4 and not above --max-bytes");
  }
  if (!(options.factor > 1)) {
    reject("--factor must be above 1");
  }
  if (options.max_bytes / 4 > 2147483647ULL && options.baseline) {
    reject("--baseline takes messages below 8 GiB: MPI_Allreduce counts elements in an int");
  }
  try {
    for (const auto& codec : options.codecs) {
      (void)CodecSpec::parse(codec);
    }
    if (!options.second_hop.empty()) {
      (void)CodecSpec::parse(options.second_hop);
    }
    if (!options.intra.empty()) {
      (void)CodecSpec::parse(options.intra);
    }
    for (const auto& algorithm : options.collectives) {
      (void)parse_algorithm(algorithm);
    }
    if (!options.link.empty()) {
      (void)LinkSchedule::parse(options.link);
    }
  } catch (const Error& error) {
    reject(error.what());
  }
}

}  // namespace

std::vector<std::uint64_t> Options::sizes() const {
  std::vector<std::uint64_t> result;
  auto bytes = static_cast<double>(min_bytes);
  while (bytes <= static_cast<double>(max_bytes)) {
    const auto size = static_cast<std::uint64_t>(bytes) / 4 * 4;
    if (result.empty() || size > result.back()) {
      result.push_back(size);
    }
    bytes *= factor;
  }
  return result;
}

Options parse_options(int argc, char** argv) {
  Options options;
  CommandLine line{
      "Times all-reduce (sum of f32) over the ranks of an MPI job. Inputs are lognormal rows with outliers, another "
      "seed "
      "on each rank. Sizes are those of the uncompressed message. A codec given twice shows the noise."};
  std::string min_bytes, max_bytes, chunk_bytes, placement = "aligned";
  line.option("--codec", options.codecs, "Codecs, such as int8,bf16,exact");
  line.option("--algorithm", options.collectives, "two_shot, one_shot, hierarchical, dense");
  line.option("--error-feedback", options.error_feedback,
              "auto (as in a policy: with topk, and at 4 bits per element or fewer), on or off")
      .one_of({"auto", "on", "off"});
  line.option("--second-hop", options.second_hop, "Codec of the owners' encoding (each codec's default)");
  line.option("--intra", options.intra, "Codec inside nodes, for hierarchical (bf16)");
  line.option("--ranks-per-node", options.ranks_per_node, "So many ranks in a row share a node (as MPI finds)");
  line.option("--min-bytes", min_bytes, "Smallest message (1MiB)");
  line.option("--max-bytes", max_bytes, "Largest message (64MiB)");
  line.option("--factor", options.factor, "From one size to the next");
  line.option("--iterations", options.iterations, "Timed calls of each row").positive();
  line.option("--warmup", options.warmup, "Untimed calls before (at least 1)").positive();
  line.option("--chunk-bytes", chunk_bytes, "Bytes of a chunk on the wire (the library's default)");
  line.option(
      "--link", options.link,
      "Emulate a link, such as 1Gbit/s,50us, or a schedule of them, such as '1Gbit/s until 30s, 100Mbit/s'; everything "
      "printed says so");
  line.option("--link-rate", options.link_rate,
              "Bytes per second that the real link carries, for the score; bench/lab/lab measures and sets it")
      .or_environment("GRADWIRE_LAB_LINK_RATE");
  line.option("--interface", options.interface, "Network device: Gloo's, and where bytes that leave are counted")
      .or_environment("GRADWIRE_LAB_INTERFACE");
  line.flag("--baseline", options.baseline, "Also run MPI_Allreduce and, where built in, Gloo");
  line.flag("--predict", options.predict,
            "Also say what the cost model predicts; needs a link of known rate (the lab, --link, --link-rate)");
  line.option("--ranks-per-core", options.ranks_per_core,
              "Ranks that share a core, for the prediction (ranks / cores of this machine)")
      .positive();
  line.option("--placement", placement, "Where input and output lie: aligned to pages, or blocks from the heap")
      .one_of({"aligned", "heap"});
  line.option("--json", options.json, "Write the rows to this file");
  line.option("--markdown", options.markdown, "Write the table to this file, as Markdown");
  try {
    line.parse(argc, argv);
    options.min_bytes = min_bytes.empty() ? options.min_bytes : parse_bytes(min_bytes);
    options.max_bytes = max_bytes.empty() ? std::max(options.max_bytes, options.min_bytes) : parse_bytes(max_bytes);
    options.placement = parse_placement(placement);
    options.chunk_bytes = chunk_bytes.empty() ? 0 : parse_bytes(chunk_bytes);
  } catch (const Error& error) {
    throw CommandLineExit(2, std::string("bench_all_reduce: ") + error.what() + "\n");
  }
  check(options);
  return options;
}

}  // namespace gradwire::bench

// gradwire plan: predicts the cost of a model's step at each scale, and advises a policy.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/durable_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "choice/codec_speed.hpp"
#include "cli/codec_forecast.hpp"
#include "cli/commands.hpp"
#include "cli/gpu_file.hpp"
#include "cli/gpu_plan.hpp"
#include "cli/measured_loss.hpp"
#include "cli/recorded_model.hpp"
#include "codec/codec.hpp"
#include "exchange/default_codecs.hpp"
#include "exchange/model/sizes.hpp"
#include "gradwire/error.hpp"
#include "plot/svg_plot.hpp"
#include "policy/stage.hpp"
#include "security/job_key.hpp"

namespace gradwire::cli {
namespace {

using cli::Candidate;
using cli::CodecForecast;
using exchange::Cluster;
using exchange::CodecCost;

// As docs/how-to/choose-a-codec.md says: from int4 on a policy begins with int8, and below it Adam's second moment must
// freeze then.
constexpr double kBitsWithoutWarmup = 7;
constexpr double kBitsOfFrozenMoment = 4;

struct Scale {
  Cluster cluster;
  std::vector<CodecForecast> forecasts;
  std::size_t advised = 0;
};

bool is_lossy(const CodecSpec& codec) { return codec::Codec(codec, DType::f32).lossy(); }

std::string milliseconds(double seconds) {
  return seconds < 10 ? format_number(seconds * 1e3, 4) + " ms" : format_number(seconds, 4) + " s";
}
std::string percent(double share) { return format_number(std::round(share * 1000) / 10, 3) + "%"; }

double seconds_of(const std::string& text) { return std::chrono::duration<double>(parse_duration(text)).count(); }

// The codecs in order of quality, uncompressed first; then further codecs that are their second hop at some scale.
std::vector<Candidate> candidates_of(const PlanCommandOptions& options) {
  std::vector<Candidate> candidates;
  std::set<std::string> seen;
  const auto add = [&](const CodecSpec& codec, bool offered) {
    if (!seen.insert(codec.to_string()).second) {
      return;
    }
    CodecCost cost = choice::measure_codec(codec, policy::wants_feedback(codec));
    if (options.codec_rate) {
      cost.encode_seconds = cost.decode_seconds = sizeof(float) / parse_rate(*options.codec_rate);
    }
    candidates.push_back({codec, cost, offered});
  };
  add(CodecSpec::exact(), true);
  add(CodecSpec::parse("bf16"), true);
  for (const std::string& text : options.codecs) {
    add(CodecSpec::parse(text), true);
  }
  for (const Candidate& candidate : std::vector(candidates)) {
    for (const int ranks : options.ranks) {
      add(exchange::default_second_hop(candidate.codec, ranks), false);
    }
  }
  return candidates;
}

// A text about the bytes that fill a rank's part of the link, and whether its frames may take so much memory.
std::string in_flight_text(const exchange::Cluster& cluster) {
  const std::uint64_t needed = exchange::window_memory(cluster);
  std::string text = format_bytes(exchange::window_of(cluster)) +
                     " of a rank keep the link full, its frames may take " +
                     format_bytes(static_cast<std::uint64_t>(cluster.in_flight_bytes));
  if (static_cast<double>(needed) > cluster.in_flight_bytes) {
    text += ": less than the " + format_bytes(needed) + " that takes, so the link carries less; see --in-flight, and " +
            "in_flight in [bucket]";
  }
  return text;
}

void print_assumptions(const PlanCommandOptions& options, const RecordedModel& read,
                       const std::vector<Candidate>& candidates, const exchange::Cluster& cluster, bool sealed,
                       std::ostream& out) {
  const ModelFile& model = read.model;
  double elements = 0;
  for (const TensorInfo& layer : model.layers) {
    elements += static_cast<double>(layer.count);
  }
  out << read.source << ": " << model.layers.size() << " layers, " << format_number(elements / 1e6, 4)
      << " million elements; a step computes " << milliseconds(model.compute_seconds) << ", the last "
      << percent(model.backward) << " of it backward\n\nAssumed:\n"
      << (read.note.empty() ? "" : "  " + read.note + '\n') << "  links: " << options.link << " and " << options.latency
      << " between "
      << (options.nodes_of > 1 ? "nodes of " + std::to_string(options.nodes_of) + " ranks, which share it" : "ranks")
      << (options.nodes_of > 1 ? "; " + options.intra_link + " and " + options.intra_latency + " inside" : "")
      << "\n  in flight: " << in_flight_text(cluster)
      << "\n  gradients become ready evenly over the backward pass, the last layer first; buckets as a session forms "
         "them, one after the other\n"
         "  uncompressed: the quicker of a perfect ring and two_shot; compressed: two_shot"
      << (options.nodes_of > 1 ? ", or hierarchical, bf16 inside nodes, where that is quicker" : "")
      << "; messages that wait for each other: 2 (ranks - 1)\n"
      << (sealed ? "  frames are encrypted with the key of GRADWIRE_KEY: their copies are in the memory, the time that "
                   "takes is not counted\n"
                 : "")
      << "  the network carries nothing else, and codecs have a core of their own, with these speeds\n";
  std::vector<std::vector<std::string>> rows{{"codec", "values", "bytes an element", "encode", "decode and add"}};
  const auto rate = [](double seconds) { return format_number(sizeof(float) / seconds / 1e9, 3) + " GB/s"; };
  for (const Candidate& candidate : candidates) {
    rows.push_back({candidate.codec.to_string(), is_lossy(candidate.codec) ? "lossy" : "exact",
                    format_number(candidate.cost.bytes, 4), rate(candidate.cost.encode_seconds),
                    rate(candidate.cost.decode_seconds)});
  }
  out << text::table(rows, "llrrr") << "  ("
      << (options.codec_rate ? "from --codec-rate" : "measured now on this machine") << ", one thread, of f32)\n\n";
}

void print_losses(const std::vector<Candidate>& candidates, std::ostream& out) {
  std::vector<std::vector<std::string>> rows{{"codec"}};
  out << "Measured: final loss to that of the same training uncompressed. Yours may differ; compare before you rely on "
         "it.\n";
  for (const LossRun& run : kLossRuns) {
    rows.front().emplace_back(run.name);
    out << "  " << run.name << ": " << run.what << " (" << run.document << ")\n";
  }
  for (const Candidate& candidate : candidates) {
    if (candidate.offered && is_lossy(candidate.codec)) {
      const MeasuredLoss* loss = find_measured_loss(candidate.codec);
      rows.push_back({candidate.codec.to_string()});
      for (std::size_t run = 0; run < kLossRuns.size(); ++run) {
        rows.back().push_back(loss_text(loss == nullptr ? std::nullopt : loss->percent[run]));
      }
    }
  }
  out << text::table(rows, "lrrrr") << '\n';
}

void print_scales(const std::vector<Scale>& scales, std::ostream& out) {
  std::vector<std::vector<std::string>> rows{{"ranks", "codec", "algorithm", "step", "exposed", "share", "speed-up",
                                              "sent by a rank", "memory", "worst loss", ""}};
  for (const Scale& scale : scales) {
    for (std::size_t i = 0; i < scale.forecasts.size(); ++i) {
      const CodecForecast& forecast = scale.forecasts[i];
      rows.push_back({std::to_string(scale.cluster.ranks), forecast.codec.to_string(),
                      std::string(to_string(i == 0 ? Algorithm::dense : forecast.algorithm)),
                      milliseconds(forecast.step.seconds), milliseconds(forecast.step.exposed),
                      percent(forecast.step.exposed / forecast.step.seconds),
                      format_number(scale.forecasts[0].step.seconds / forecast.step.seconds, 3),
                      format_bytes(static_cast<std::uint64_t>(forecast.sent_bytes)), format_bytes(forecast.memory),
                      worst_loss_text(forecast.codec),
                      i == scale.advised   ? "<-"
                      : forecast.advisable ? ""
                                           : "not advised: lost more than 5%"});
    }
  }
  out << text::table(rows, "rllrrrrrrrl") << "exposed: communication that no computing hides; share: of the step; "
      << "speed-up: against uncompressed; memory:\nof a rank's session beside the gradients, residuals and at most "
         "the frames under way; worst loss: of the measured runs\nabove; (SGD): not measured under AdamW; <-: advised. "
         "All codecs but exact are lossy\n\n";
}

// The first steps of a policy: gradients are large in them, and Adam's second moment is young. How long they are is
// what the trainings of docs/results/README.md had.
std::string warmup_of(const CodecSpec& codec) {
  const double bits = exchange::bits_per_element(codec);
  if (codec.k != 0) {
    return "warmup = [ { until_step = 200, codec = \"int8\" } ]  # a tenth of 2,000 steps\n";
  }
  if (bits < kBitsOfFrozenMoment) {
    return "# With Adam, freeze the second moment where the warm-up ends.\n"
           "warmup = [ { until_step = 300, codec = \"int8\" } ]  # 15% of 2,000 steps\n";
  }
  if (bits < kBitsWithoutWarmup) {
    return "warmup = [ { until_step = 100, codec = \"int8\" } ]  # ten steps were enough for trainings of 80\n";
  }
  return "";
}

void print_policy(const CodecSpec& codec, bool tiered, std::ostream& out) {
  if (is_lossy(codec)) {
    const std::string_view after = loss_after_warmup(codec);
    out << "# measured: a final loss of ";
    if (after.empty()) {
      out << worst_loss_text(codec) << " in the worst run\n";
    } else {
      out << after << ";\n# " << worst_loss_text(codec) << " in the worst other run\n";
    }
  }
  if (codec.k != 0) {
    out << "# topk needs a training of some thousand steps, since a value that is not selected waits for many steps; "
           "the\n"
           "# warm-up below, for a tenth of them; and with Adam a second moment that is frozen then.\n"
           "# Compare the loss with an uncompressed run.\n";
  }
  out << "version = 1\n[defaults]\ncodec = \"" << codec.to_string() << "\"\n"
      << warmup_of(codec) << (tiered ? "algorithm = \"hierarchical\"\n\n" : "\n");
}

// Prints the advice; scales with the same advice share a policy.
void print_advice(const std::vector<Scale>& scales, double target, std::ostream& out) {
  for (std::size_t first = 0; first < scales.size();) {
    std::size_t last = first;
    const auto advised = [&](std::size_t scale) -> const CodecForecast& {
      return scales[scale].forecasts[scales[scale].advised];
    };
    const CodecSpec& codec = advised(first).codec;
    const bool tiered = scales[first].advised != 0 && advised(first).algorithm == Algorithm::hierarchical;
    while (last + 1 < scales.size() && advised(last + 1).codec == codec &&
           advised(last + 1).algorithm == advised(first).algorithm) {
      ++last;
    }
    out << "# " << scales[first].cluster.ranks
        << (last > first ? " to " + std::to_string(scales[last].cluster.ranks) : std::string()) << " ranks: ";
    const CodecForecast& worst = advised(last);
    const double share = worst.step.exposed / worst.step.seconds;
    if (scales[last].advised == 0 && share <= target) {
      out << "the network keeps up uncompressed; leave the job alone\n";
    } else {
      out << (share <= target ? "exposed communication stays within " + percent(target)
                              : "no candidate hides it (" + percent(share) +
                                    " exposed); none of better quality is within 5% of this one")
          << '\n';
    }
    print_policy(codec, tiered, out);
    first = last + 1;
  }
}

void write_plot(const std::string& file, const std::vector<Scale>& scales, double compute) {
  plot::Plot step{.title = "Predicted step time", .x = {.label = "ranks", .logarithmic = true}, .y = {.label = "ms"}};
  plot::Plot share{.title = "Exposed communication",
                   .x = {.label = "ranks", .logarithmic = true},
                   .y = {.label = "% of a step", .low = 0, .high = 100}};
  for (std::size_t i = 0; i < scales.front().forecasts.size(); ++i) {
    const std::string name = scales.front().forecasts[i].codec.to_string();
    plot::Series seconds{.name = name};
    plot::Series exposed{.name = name};
    for (const Scale& scale : scales) {
      const CodecForecast& forecast = scale.forecasts[i];
      seconds.points.emplace_back(scale.cluster.ranks, forecast.step.seconds * 1e3);
      exposed.points.emplace_back(scale.cluster.ranks, 100 * forecast.step.exposed / forecast.step.seconds);
    }
    step.series.push_back(std::move(seconds));
    share.series.push_back(std::move(exposed));
  }
  step.reference = compute * 1e3;
  step.reference_name = "computing alone";
  write_report_file(file, [&](std::ostream& stream) {
    stream << plot::render_svg({step, share}, "predicted by gradwire plan");
  });
}

// DDP's own size of a bucket, which pictures show.
constexpr std::uint64_t kDrawnBytes = 25ULL << 20;
constexpr std::uint64_t kMostBucketBytes = 4ULL << 30;

RecordedModel model_of(const PlanCommandOptions& options) {
  return options.from ? read_recorded_model(*options.from, options.compute)
                      : RecordedModel{ModelFile::load(*options.layers), *options.layers};
}

void check(const PlanCommandOptions& options) {
  if (options.gpu && !options.layers && !options.from) {
    return;
  }
  if (options.layers.has_value() == options.from.has_value()) {
    throw Error(ErrorCode::invalid_argument,
                options.from ? "--layers and --from are both given; write one of them"
                             : "there is no model; write --layers model.toml, or --from with recorded gradients or a "
                               "report of gradwire run; --gpu alone compares sizes of buckets");
  }
  if (options.compute && options.layers) {
    throw Error(ErrorCode::invalid_argument, "--compute is for --from; write compute in " + *options.layers);
  }
  for (const int ranks : options.ranks) {
    if (ranks % options.nodes_of != 0 && ranks > options.nodes_of) {
      throw Error(ErrorCode::invalid_argument, "--nodes-of " + std::to_string(options.nodes_of) + " does not divide " +
                                                   std::to_string(ranks) + " ranks; name whole nodes in --ranks");
    }
  }
}

int plan_gpus(const PlanCommandOptions& options, std::ostream& out) {
  const exchange::DeviceCluster cluster = load_gpu_file(*options.gpu);
  if (options.layers || options.from) {
    print_gpu_steps(cluster, model_of(options), out);
  } else {
    std::vector<std::uint64_t> sizes;
    for (const std::string& text : options.buckets) {
      sizes.push_back(parse_bytes(text));
      if (sizes.back() < sizeof(float) || sizes.back() > kMostBucketBytes) {
        throw Error(ErrorCode::invalid_argument,
                    "--buckets " + text + ": write sizes from 4B to " + format_bytes(kMostBucketBytes));
      }
    }
    print_gpu_table(cluster, sizes, out);
  }
  if (options.svg) {
    write_report_file(
        *options.svg, [&](std::ostream& stream) { stream << draw_launches(cluster, kDrawnBytes); }, Readers::everybody);
    out << "picture of a " << format_bytes(kDrawnBytes) << " bucket: " << *options.svg << '\n';
  }
  return 0;
}

}  // namespace

int plan(const PlanCommandOptions& options, std::ostream& out) {
  check(options);
  if (options.gpu) {
    return plan_gpus(options, out);
  }
  const RecordedModel read = model_of(options);
  const ModelFile& model = read.model;
  const double target = parse_fraction(options.target_exposed);
  const exchange::LinkCost inter{seconds_of(options.latency), parse_rate(options.link)};
  const exchange::LinkCost intra{seconds_of(options.intra_latency), parse_rate(options.intra_link)};
  const auto in_flight = static_cast<double>(parse_bytes(options.in_flight));
  const std::vector<Candidate> candidates = candidates_of(options);
  std::vector<int> worlds = options.ranks;
  std::sort(worlds.begin(), worlds.end());
  const bool sealed = security::key_setting().has_value();
  std::vector<Scale> scales;
  for (const int ranks : worlds) {
    Scale scale{.cluster = {.ranks = ranks,
                            .ranks_per_node = std::min(ranks, options.nodes_of),
                            .inter = inter,
                            .intra = intra,
                            .in_flight_bytes = in_flight},
                .forecasts = {}};
    scale.forecasts = cli::forecast(model, scale.cluster, candidates, sealed);
    for (CodecForecast& one : scale.forecasts) {
      one.advisable = !loses_too_much(one.codec);
    }
    scale.advised = cli::advise(scale.forecasts, target);
    scales.push_back(std::move(scale));
  }
  print_assumptions(options, read, candidates, scales.front().cluster, sealed, out);
  print_losses(candidates, out);
  print_scales(scales, out);
  print_advice(scales, target, out);
  if (options.svg) {
    write_plot(*options.svg, scales, model.compute_seconds);
    out << "plot: " << *options.svg << '\n';
  }
  return 0;
}

}  // namespace gradwire::cli

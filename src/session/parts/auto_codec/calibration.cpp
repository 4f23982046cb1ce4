#include "session/parts/auto_codec/calibration.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/elapsed.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "choice/codec_speed.hpp"
#include "choice/rounds.hpp"
#include "codec/codec.hpp"
#include "exchange/model/sizes.hpp"
#include "plan/memory_use.hpp"
#include "policy/sync.hpp"

namespace gradwire::session {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kAlike = 20e-6;        // seconds; the transport's own sum may seem slower than frames by that
constexpr double kTrialSeconds = 3e-3;  // for one reduction
constexpr double kSmallElements = 1024;
constexpr int kTrialRounds = 3;  // for each reduction: the quickest counts, as the others were disturbed
constexpr int kSmallRounds = 5;
constexpr double kMostElements = 1 << 20;  // 4 MiB
constexpr auto kCodecBudget = std::chrono::milliseconds(1);

// Returns a plan of one bucket with `count` elements and one level.
plan::Plan trial_plan(const plan::Plan& plan, DType dtype, const policy::Level& level, std::uint64_t count) {
  plan::Plan trial;
  trial.options = plan.options;
  trial.tiers = plan.tiers;
  trial.chunk_bytes = plan.chunk_bytes;
  trial.fitting_chunk_bytes = plan.fitting_chunk_bytes;
  trial.in_flight_bytes = plan.in_flight_bytes;
  trial.deterministic = plan.deterministic;
  trial.groups = {{.name = "calibration", .policy = {}, .tensors = 1, .elements = count}};
  plan::Bucket bucket;
  bucket.dtype = dtype;
  bucket.codec = level.stage.codec;
  bucket.algorithm = level.algorithm;
  bucket.levels = {level};
  bucket.parts = {{0, 0, count}};
  bucket.count = count;
  trial.buckets = {bucket};
  return trial;
}

using By = TrialStep::By;

struct Trial {
  DType dtype;
  policy::Level level;
  By by;
  exchange::Way way;
  double largest;  // elements of the largest bucket
  std::vector<exchange::Timing> timings = {};
};

bool same(const Trial& trial, DType dtype, const policy::Level& level, By by) {
  return trial.dtype == dtype && trial.by == by && trial.level.algorithm == level.algorithm &&
         trial.level.stage == level.stage;
}

std::string way_text(const Trial& trial) {
  switch (trial.by) {
    case By::frames: break;
    case By::native: return "the transport's own sum";
    case By::in_call: return "the transport's blocking sum";
    case By::at_once: return "the transport's own sum, made at once";
  }
  return std::string(to_string(trial.level.algorithm)) + " of " + trial.level.stage.codec.to_string();
}

class Calibrator {
 public:
  Calibrator(Runner& runner, Probes& probes, const plan::Plan& plan, StepsAhead steps, const exchange::Cluster& cluster)
      : runner_(runner), probes_(probes), plan_(plan), steps_(steps), cluster_(cluster) {}

  std::vector<choice::Ways> run() {
    for (const plan::Bucket& bucket : plan_.buckets) {
      for (const policy::Level& level : plan::levels_up_to(bucket, plan_.most_level)) {
        add_trials(bucket, level);
      }
    }
    agree_on_codecs();
    settle();
    std::vector<double> seconds;
    for (const Trial& trial : trials_) {
      for (const double elements : sizes(trial)) {
        time(trial, static_cast<std::uint64_t>(elements), seconds);
      }
    }
    seconds = choice::slowest(exchange::gather_numbers(runner_.peers(), seconds, "calibration"));
    std::span<const double> next = seconds;
    for (Trial& trial : trials_) {
      for (const double elements : sizes(trial)) {
        const auto count = static_cast<std::size_t>(rounds(elements));
        trial.timings.push_back({elements, choice::quickest(next.first(count))});
        next = next.subspan(count);
      }
    }
    std::for_each(trials_.begin(), trials_.end(), log_timings);
    for (const Trial& trial : trials_) {
      learn_from(trial);
    }
    std::vector<choice::Ways> ways;
    for (const plan::Bucket& bucket : plan_.buckets) {
      ways.push_back(ways_of(bucket));
    }
    return ways;
  }

  /// Returns the cluster, corrected by what reductions showed of the link.
  [[nodiscard]] const exchange::Cluster& cluster() const noexcept { return cluster_; }

 private:
  // Makes ranks look for messages without sleeping. After long waits, as for large messages, a rank may sleep in the
  // waits that follow; many short waits end that.
  void settle() {
    constexpr double kMostSeconds = 2e-3;
    constexpr double kMostRounds = 16;
    const choice::Neighbours neighbours = choice::neighbours_in_ring(runner_.info().world_size, runner_.info().rank);
    const int rounds = static_cast<int>(
        std::min(kMostRounds, kMostSeconds / std::max(cluster_.inter.latency_seconds, kMostSeconds / kMostRounds)));
    for (int round = 0; round < rounds; ++round) {
      (void)probes_.time_exchange(neighbours.to, neighbours.from, 1);
    }
  }

  // Raises the link's rate if a reduction was faster: then something disturbed the exchange that measured the link.
  void learn_from(const Trial& trial) {
    exchange::LinkCost& link = cluster_.inter;
    const exchange::Timing& large = trial.timings.back();
    const double bytes = exchange::way_cost(cluster_, trial.way, large.elements).wire * link.bytes_per_second;
    if (cluster_.ranks_per_node == 1 && link.seen_bytes > 0 && bytes > link.seen_bytes / 2) {
      link.bytes_per_second = std::max(link.bytes_per_second, bytes / large.seconds);
    }
  }

  static void log_timings(const Trial& trial) {
    std::string text = way_text(trial);
    for (const exchange::Timing& timing : trial.timings) {
      text += ", " + format_number(timing.elements) + " elements in " + format_number(timing.seconds * 1e6, 4) + " us";
    }
    log(LogLevel::debug, "timed " + text);
  }

  void add_trials(const plan::Bucket& bucket, const policy::Level& level) {
    if (!covered(bucket, level, By::frames)) {
      trials_.push_back({bucket.dtype, level, By::frames, way_of(bucket, level), static_cast<double>(bucket.count)});
    }
    const std::optional<By> native = native_of(bucket, level);
    if (native && !covered(bucket, level, *native)) {
      exchange::Way way = find(bucket.dtype, level, By::frames)->way;
      way.native = true;
      trials_.push_back({bucket.dtype, level, *native, way, static_cast<double>(bucket.count)});
    }
  }

  // Whether there is a trial for another bucket, which then becomes as large as the larger of the two.
  bool covered(const plan::Bucket& bucket, const policy::Level& level, By by) {
    for (Trial& trial : trials_) {
      if (same(trial, bucket.dtype, level, by)) {
        trial.largest = std::max(trial.largest, static_cast<double>(bucket.count));
        return true;
      }
    }
    return false;
  }

  static exchange::Way way_of(const plan::Bucket& bucket, const policy::Level& level) {
    const bool feedback = level.stage.error_feedback;
    exchange::Way way{.algorithm = level.algorithm == Algorithm::dense ? Algorithm::two_shot : level.algorithm,
                      .first = choice::measure_codec(level.stage.codec, feedback, kCodecBudget),
                      .second = choice::measure_codec(level.stage.second_hop, feedback, kCodecBudget)};
    if (level.stage.intra) {
      way.intra = choice::measure_codec(*level.stage.intra, feedback, kCodecBudget);
    }
    if (level.algorithm == Algorithm::dense) {
      way.first.bytes = way.second.bytes = static_cast<double>(element_bytes(bucket.dtype));
    }
    return way;
  }

  // Returns how the bucket's step would make a sum of the transport's own, if it may. Buckets that are not the step's
  // last get no such sum at the sizes at which the last one has a blocking call, because sums without this call take
  // twice as long.
  [[nodiscard]] std::optional<By> native_of(const plan::Bucket& bucket, const policy::Level& level) const {
    if (level.algorithm != Algorithm::dense || !policy::is_step(bucket.sync) || !probes_.has_native(bucket.dtype)) {
      return std::nullopt;
    }
    if (small_ && !steps_.weighted && !steps_.look_first) {
      return By::at_once;
    }
    const bool last = bucket.id + 1 == plan_.buckets.size();
    if (last && in_call_) {
      return By::in_call;
    }
    const BucketChoice native{.level = 0, .native = true};
    const plan::Plan alone = trial_plan(plan_, bucket.dtype, level, bucket.count);
    return last || !probes_.ends_in_call(alone, std::span(&native, 1)) ? std::optional(By::native) : std::nullopt;
  }

  // Each rank has measured its own codecs, and the sizes of trials depend on them.
  void agree_on_codecs() {
    std::vector<double> mine;
    for (const Trial& trial : trials_) {
      for (const exchange::CodecCost* codec : {&trial.way.first, &trial.way.second, &trial.way.intra}) {
        mine.insert(mine.end(), {codec->encode_seconds, codec->decode_seconds});
      }
    }
    const std::vector<double> agreed = choice::slowest(exchange::gather_numbers(runner_.peers(), mine, "calibration"));
    auto next = agreed.begin();
    for (Trial& trial : trials_) {
      for (exchange::CodecCost* codec : {&trial.way.first, &trial.way.second, &trial.way.intra}) {
        codec->encode_seconds = *next++;
        codec->decode_seconds = *next++;
      }
    }
  }

  // Returns two sizes, to tell overhead from rate: a large one, the largest bucket or as much as can be afforded, and a
  // small one of at most a quarter of that.
  [[nodiscard]] std::vector<double> sizes(const Trial& trial) const {
    const double seconds = exchange::model_seconds(cluster_, trial.way, kMostElements);
    const double affordable =
        std::max(4 * kSmallElements, std::floor(kMostElements * kTrialSeconds / std::max(seconds, 1e-9)));
    const double large = std::min({trial.largest, affordable, kMostElements});
    return {std::min(kSmallElements, std::ceil(large / 4)), large};
  }

  static int rounds(double elements) { return elements <= 4 * kSmallElements ? kSmallRounds : kTrialRounds; }

  void time(const Trial& trial, std::uint64_t elements, std::vector<double>& seconds) {
    const plan::Plan plan = trial_plan(plan_, trial.dtype, trial.level, elements);
    const TensorMemory memory{{values_.data(), elements, trial.dtype}, false};
    fill(memory.gradient);
    for (int round = 0; round < rounds(static_cast<double>(elements)); ++round) {
      seconds.push_back(probes_.time_reduction(plan, memory, {trial.by, steps_.weighted}));
    }
  }

  [[nodiscard]] const Trial* find(DType dtype, const policy::Level& level, By by) const {
    for (const Trial& trial : trials_) {
      if (same(trial, dtype, level, by)) {
        return &trial;
      }
    }
    return nullptr;
  }

  [[nodiscard]] choice::Ways ways_of(const plan::Bucket& bucket) const {
    choice::Ways ways;
    const auto elements = static_cast<double>(bucket.count);
    const auto fitted = [&](const Trial& trial) {
      return exchange::LevelForecast(trial.way, exchange::fit(cluster_, trial.way, trial.timings));
    };
    for (const policy::Level& level : plan::levels_up_to(bucket, plan_.most_level)) {
      ways.levels.push_back(fitted(*find(bucket.dtype, level, By::frames)));
      if (const std::optional<By> native = native_of(bucket, level)) {
        const exchange::LevelForecast forecast = fitted(*find(bucket.dtype, level, *native));
        if (small_ || forecast.seconds(cluster_, elements) < ways.levels.back().seconds(cluster_, elements) + kAlike) {
          ways.levels.back() = forecast;
          ways.native = true;
        }
      }
    }
    return ways;
  }

  [[nodiscard]] std::vector<BucketChoice> all_native() const {
    return std::vector<BucketChoice>(plan_.buckets.size(), {.level = 0, .native = true});
  }
  // Whether the transport's own sums make steps small. Frames never beat such steps, even if disturbed timings say so.
  [[nodiscard]] bool are_small() const {
    const SmallSteps* steps = runner_.small();
    return steps != nullptr && steps->takes(plan_, all_native());
  }

  Runner& runner_;
  Probes& probes_;
  const plan::Plan& plan_;
  StepsAhead steps_;
  exchange::Cluster cluster_;
  bool small_ = are_small();
  bool in_call_ = !steps_.weighted && probes_.ends_in_call(plan_, all_native());
  std::vector<Trial> trials_;
  // Fills f32 with pseudo-random values in [-1, 1), so that selection and rotation see what they see in a training.
  // Other types get zeros.
  static void fill(const View& view) {
    std::memset(view.data, 0, view.count * element_bytes(view.dtype));
    if (view.dtype == DType::f32) {
      std::uint32_t state = 1;
      auto* values = static_cast<float*>(view.data);
      for (std::uint64_t i = 0; i < view.count; ++i) {
        state = state * 1664525U + 1013904223U;  // Numerical Recipes
        values[i] = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F;
      }
    }
  }

  std::vector<double> values_ = std::vector<double>(static_cast<std::size_t>(kMostElements));  // f64 is the largest
};

}  // namespace

exchange::Cluster measure_cluster(Runner& runner, Probes& probes, const exchange::Tiers& tiers) {
  return choice::measure_cluster(runner.peers(), tiers, runner.info().rank,
                                 [&](const choice::Neighbours& neighbours, std::uint64_t bytes) {
                                   return probes.time_exchange(neighbours.to, neighbours.from, bytes);
                                 });
}

choice::Measurements calibrate(Runner& runner, Probes& probes, const plan::Plan& plan, const StepsAhead& steps,
                               const std::optional<Link>& link, const LinkMeasured& measured) {
  const Clock::time_point start = Clock::now();
  choice::Measurements result;
  result.cluster = link ? exchange::given_cluster(*link, *plan.tiers) : measure_cluster(runner, probes, *plan.tiers);
  result.cluster.in_flight_bytes = static_cast<double>(plan.in_flight_bytes);
  probes.know_link(result.cluster);
  if (!link && runner.info().world_size > 1) {
    measured({.bytes_per_second = result.cluster.inter.bytes_per_second,
              .latency = std::chrono::nanoseconds(std::llround(result.cluster.inter.latency_seconds * 1e9))});
  }
  if (runner.info().world_size > 1) {
    Calibrator calibrator(runner, probes, plan, steps, result.cluster);
    result.buckets = calibrator.run();
    result.cluster = calibrator.cluster();
  }
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace gradwire::session

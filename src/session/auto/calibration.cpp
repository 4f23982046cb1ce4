#include "session/auto/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>

#include "base/elapsed.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "codec/codec.hpp"
#include "tuning/codec_speed.hpp"
#include "tuning/sizes.hpp"

namespace gradwire::session {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLatencyRounds = 9;
constexpr std::uint64_t kFirstBytes = 16ULL << 10;
constexpr std::uint64_t kMostBytes = 8ULL << 20;
constexpr double kEnoughSeconds = 3e-3;  // for one exchange: the link is seen, and 100 ms in all are kept
constexpr double kManyLatencies = 3;     // beside which an error of the latency is small
constexpr double kTierSeconds = 50e-3;   // for exchanges, after which one that is long enough will do
constexpr double kFarSeconds =
    400e-3;                           // likewise of a far link, on which few bytes are lost in the error of the latency
constexpr double kSeen = 0.3;         // of the latency, what bytes add to it
constexpr double kLeastShare = 0.05;  // of an exchange: less cannot be told from nothing
constexpr double kAlike = 20e-6;      // seconds, by which the transport's own sum may seem slower than frames
constexpr double kTrialSeconds = 3e-3;  // for one reduction
constexpr double kSmallElements = 1024;
constexpr int kRounds = 2;  // of an exchange or a reduction: the quickest counts, others were disturbed
constexpr int kTrialRounds = 3;
constexpr int kSmallRounds = 5;
constexpr double kMostElements = 1 << 20;  // 4 MiB
constexpr auto kCodecBudget = std::chrono::milliseconds(1);

// The slowest rank's number at each place: what a collective takes is what its last rank takes.
std::vector<double> slowest(const std::vector<std::vector<double>>& all) {
  std::vector<double> most = all[0];
  for (const std::vector<double>& numbers : all) {
    for (std::size_t i = 0; i < most.size(); ++i) {
      most[i] = std::max(most[i], numbers[i]);
    }
  }
  return most;
}

// Of several rounds, each as long as its slowest rank's: a rank that comes late finds what was sent meanwhile.
double quickest(std::span<const double> rounds) { return *std::min_element(rounds.begin(), rounds.end()); }

// A plan of one bucket of `count` elements with one level.
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

struct Trial {
  DType dtype;
  policy::Level level;
  bool native;
  tuning::Way way;
  double largest;  // elements of a bucket
  std::vector<tuning::Timing> timings = {};
};

bool same(const Trial& trial, DType dtype, const policy::Level& level) {
  return trial.dtype == dtype && trial.level.algorithm == level.algorithm && trial.level.stage == level.stage;
}

class Calibrator {
 public:
  Calibrator(Runner& runner, Probes& probes, const plan::Plan& plan, const tuning::Cluster& cluster)
      : runner_(runner), probes_(probes), plan_(plan), cluster_(cluster) {}

  std::vector<BucketWays> run() {
    for (const plan::Bucket& bucket : plan_.buckets) {
      for (const policy::Level& level : bucket.levels) {
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
    seconds = slowest(gather_numbers(runner_.peers(), seconds, "calibration"));
    std::span<const double> next = seconds;
    for (Trial& trial : trials_) {
      for (const double elements : sizes(trial)) {
        const auto count = static_cast<std::size_t>(rounds(elements));
        trial.timings.push_back({elements, quickest(next.first(count))});
        next = next.subspan(count);
      }
    }
    std::for_each(trials_.begin(), trials_.end(), log_timings);
    for (const Trial& trial : trials_) {
      learn_from(trial);
    }
    std::vector<BucketWays> ways;
    for (const plan::Bucket& bucket : plan_.buckets) {
      ways.push_back(ways_of(bucket));
    }
    return ways;
  }

  /// With what reductions showed of the link.
  [[nodiscard]] const tuning::Cluster& cluster() const noexcept { return cluster_; }

 private:
  // Long waits, as those of large messages, let a rank sleep in those that follow; many short ones end that.
  void settle() {
    constexpr double kMostSeconds = 2e-3;
    constexpr double kMostRounds = 16;
    const int world = runner_.info().world_size;
    const int rank = runner_.info().rank;
    const int rounds = static_cast<int>(
        std::min(kMostRounds, kMostSeconds / std::max(cluster_.inter.latency_seconds, kMostSeconds / kMostRounds)));
    for (int round = 0; round < rounds; ++round) {
      (void)probes_.time_exchange((rank + 1) % world, (rank + world - 1) % world, 1);
    }
  }

  // No link carries less than what went through it: the exchange was disturbed.
  void learn_from(const Trial& trial) {
    tuning::LinkCost& link = cluster_.inter;
    const tuning::Timing& large = trial.timings.back();
    const double bytes = tuning::way_cost(cluster_, trial.way, large.elements).wire * link.bytes_per_second;
    if (cluster_.ranks_per_node == 1 && link.seen_bytes > 0 && bytes > link.seen_bytes / 2) {
      link.bytes_per_second = std::max(link.bytes_per_second, bytes / large.seconds);
    }
  }

  static void log_timings(const Trial& trial) {
    std::string text =
        trial.native ? "the transport's own sum"
                     : std::string(to_string(trial.level.algorithm)) + " of " + trial.level.stage.codec.to_string();
    for (const tuning::Timing& timing : trial.timings) {
      text += ", " + format_number(timing.elements) + " elements in " + format_number(timing.seconds * 1e6, 4) + " us";
    }
    log(LogLevel::debug, "timed " + text);
  }

  void add_trials(const plan::Bucket& bucket, const policy::Level& level) {
    bool known = false;
    for (Trial& trial : trials_) {
      if (same(trial, bucket.dtype, level)) {
        trial.largest = std::max(trial.largest, static_cast<double>(bucket.count));
        known = true;
      }
    }
    if (known) {
      return;
    }
    const bool feedback = level.stage.error_feedback;
    tuning::Way way{.algorithm = level.algorithm == Algorithm::dense ? Algorithm::two_shot : level.algorithm,
                    .first = tuning::measure_codec(level.stage.codec, feedback, kCodecBudget),
                    .second = tuning::measure_codec(level.stage.second_hop, feedback, kCodecBudget)};
    if (level.stage.intra) {
      way.intra = tuning::measure_codec(*level.stage.intra, feedback, kCodecBudget);
    }
    if (level.algorithm == Algorithm::dense) {
      way.first.bytes = way.second.bytes = static_cast<double>(element_bytes(bucket.dtype));
    }
    const auto count = static_cast<double>(bucket.count);
    trials_.push_back({bucket.dtype, level, false, way, count});
    if (level.algorithm == Algorithm::dense && probes_.has_native(bucket.dtype)) {
      tuning::Way native = way;
      native.native = true;
      trials_.push_back({bucket.dtype, level, true, native, count});
    }
  }

  // Each rank measured its own; sizes of trials depend on them.
  void agree_on_codecs() {
    std::vector<double> mine;
    for (const Trial& trial : trials_) {
      for (const tuning::CodecCost* codec : {&trial.way.first, &trial.way.second, &trial.way.intra}) {
        mine.insert(mine.end(), {codec->encode_seconds, codec->decode_seconds});
      }
    }
    const std::vector<double> agreed = slowest(gather_numbers(runner_.peers(), mine, "calibration"));
    auto next = agreed.begin();
    for (Trial& trial : trials_) {
      for (tuning::CodecCost* codec : {&trial.way.first, &trial.way.second, &trial.way.intra}) {
        codec->encode_seconds = *next++;
        codec->decode_seconds = *next++;
      }
    }
  }

  // As large as the largest bucket, or as can be afforded; and a quarter of that or less, to tell overhead from rate.
  [[nodiscard]] std::vector<double> sizes(const Trial& trial) const {
    const double seconds = tuning::model_seconds(cluster_, trial.way, kMostElements);
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
      seconds.push_back(probes_.time_reduction(plan, memory, trial.native));
    }
  }

  [[nodiscard]] const Trial* find(DType dtype, const policy::Level& level, bool native) const {
    for (const Trial& trial : trials_) {
      if (same(trial, dtype, level) && trial.native == native) {
        return &trial;
      }
    }
    return nullptr;
  }

  [[nodiscard]] BucketWays ways_of(const plan::Bucket& bucket) const {
    BucketWays ways;
    const auto elements = static_cast<double>(bucket.count);
    const auto fitted = [&](const Trial& trial) {
      return tuning::LevelForecast(trial.way, tuning::fit(cluster_, trial.way, trial.timings));
    };
    for (const policy::Level& level : bucket.levels) {
      ways.levels.push_back(fitted(*find(bucket.dtype, level, false)));
      if (const Trial* native = find(bucket.dtype, level, true); native != nullptr && serves(*native, bucket)) {
        const tuning::LevelForecast forecast = fitted(*native);
        if (small_ || forecast.seconds(cluster_, elements) < ways.levels.back().seconds(cluster_, elements) + kAlike) {
          ways.levels.back() = forecast;
          ways.native = true;
        }
      }
    }
    return ways;
  }

  // Blocking calls were timed where this size takes them, and only a step's last bucket may.
  [[nodiscard]] bool serves(const Trial& native, const plan::Bucket& bucket) const {
    const BucketChoice choice{.level = 0, .native = true};
    return bucket.id + 1 == plan_.buckets.size() ||
           !probes_.ends_in_call(trial_plan(plan_, native.dtype, native.level, bucket.count), std::span(&choice, 1));
  }

  Runner& runner_;
  Probes& probes_;
  // Whether the transport's own sums make steps small, which frames never beat, whatever disturbed the timings.
  [[nodiscard]] bool small() const {
    const std::vector<BucketChoice> native(plan_.buckets.size(), {.level = 0, .native = true});
    const SmallSteps* steps = runner_.small();
    return steps != nullptr && steps->takes(plan_, native);
  }

  const plan::Plan& plan_;
  tuning::Cluster cluster_;
  bool small_ = small();
  std::vector<Trial> trials_;
  // Of f32, pseudo-random in [-1, 1): selection and rotation see what they see in a training. Others: zeros.
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

tuning::LinkCost measure_tier(Runner& runner, Probes& probes, const Neighbours& neighbours) {
  const auto exchange = [&](std::uint64_t bytes) {
    return probes.time_exchange(neighbours.to, neighbours.from, bytes);
  };
  const auto agreed = [&](int rounds, std::uint64_t bytes) {  // the slowest rank's part of the quickest round
    std::vector<double> seconds(static_cast<std::size_t>(rounds));
    std::generate(seconds.begin(), seconds.end(), [&] { return exchange(bytes); });
    return quickest(slowest(gather_numbers(runner.peers(), seconds, "calibration")));
  };
  const double latency = agreed(kLatencyRounds, 1);
  double rate = 0;
  double seen = 0;
  double spent = 0;
  std::optional<double> before;  // what half as many bytes added
  const auto enough = [&](double seconds) {
    const double added = seconds - latency;
    const double budget = added > kSeen * latency ? kTierSeconds : kFarSeconds;
    return seconds > kEnoughSeconds && (seconds > kManyLatencies * latency || spent > budget);
  };
  // Every rank makes the same exchanges, and stops at bytes that take so long that an error of the latency is small.
  // What took long once may have been disturbed.
  for (std::uint64_t bytes = kFirstBytes; bytes <= kMostBytes; bytes *= 2) {
    double seconds = agreed(kRounds, bytes);
    spent += kRounds * seconds;
    const bool again = enough(seconds);
    if (again) {
      seconds = std::min(seconds, agreed(kRounds, bytes));
      spent += kRounds * seconds;
    }
    const double added = std::max(seconds - latency, kLeastShare * seconds);
    seen = static_cast<double>(bytes);
    rate = tuning::link_rate(seen, before.value_or(added / 2), added);
    before = added;
    if (again && enough(seconds)) {
      break;
    }
  }
  return {latency, rate, seen};
}

}  // namespace

Neighbours neighbours_inside(const collective::Tiers& tiers, int rank) {
  const std::vector<int>& members = tiers.members(tiers.node_of(rank));
  const auto place = static_cast<std::size_t>(tiers.place_of(rank));
  return {members[(place + 1) % members.size()], members[(place + members.size() - 1) % members.size()]};
}

Neighbours neighbours_between(const collective::Tiers& tiers, int rank) {
  const int node = tiers.node_of(rank);
  const auto place = static_cast<std::size_t>(tiers.place_of(rank));
  return {tiers.members((node + 1) % tiers.nodes())[place],
          tiers.members((node + tiers.nodes() - 1) % tiers.nodes())[place]};
}

tuning::Cluster measure_cluster(Runner& runner, Probes& probes, const collective::Tiers& tiers) {
  const int world = runner.info().world_size;
  const int rank = runner.info().rank;
  tuning::Cluster cluster{.ranks = world, .ranks_per_node = 1};
  if (world == 1) {
    return cluster;
  }
  if (!tiers.why_not_hierarchical().empty()) {
    cluster.inter = measure_tier(runner, probes, {(rank + 1) % world, (rank + world - 1) % world});
    return cluster;
  }
  cluster.ranks_per_node = static_cast<int>(tiers.members(0).size());
  cluster.intra = measure_tier(runner, probes, neighbours_inside(tiers, rank));
  cluster.inter = measure_tier(runner, probes, neighbours_between(tiers, rank));
  cluster.inter.bytes_per_second *= cluster.ranks_per_node;  // all ranks of a node sent at once
  cluster.inter.seen_bytes *= cluster.ranks_per_node;
  return cluster;
}

LinkEstimate to_estimate(const tuning::Cluster& cluster, double seconds) {
  LinkEstimate estimate;
  estimate.ranks_per_node = cluster.ranks_per_node;
  estimate.inter = {cluster.inter.latency_seconds, cluster.inter.bytes_per_second};
  estimate.intra = {cluster.intra.latency_seconds, cluster.intra.bytes_per_second};
  estimate.measured_in_seconds = seconds;
  return estimate;
}

Calibration calibrate(Runner& runner, Probes& probes, const plan::Plan& plan, const std::optional<Link>& link,
                      const LinkMeasured& measured) {
  const Clock::time_point start = Clock::now();
  Calibration result;
  result.cluster = link ? tuning::given_cluster(*link, *plan.tiers) : measure_cluster(runner, probes, *plan.tiers);
  result.cluster.in_flight_bytes = static_cast<double>(plan.in_flight_bytes);
  probes.know_link(result.cluster);
  if (!link && runner.info().world_size > 1) {
    measured({.bytes_per_second = result.cluster.inter.bytes_per_second,
              .latency = std::chrono::nanoseconds(std::llround(result.cluster.inter.latency_seconds * 1e9))});
  }
  if (runner.info().world_size > 1) {
    Calibrator calibrator(runner, probes, plan, result.cluster);
    result.buckets = calibrator.run();
    result.cluster = calibrator.cluster();
  }
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace gradwire::session

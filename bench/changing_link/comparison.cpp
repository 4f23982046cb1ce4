#include "bench/changing_link/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/units.hpp"
#include "bench/support/samples.hpp"

namespace gradwire::changing_link {
namespace {

constexpr std::size_t kEnoughSteps = 5;  // of a phase, enough to judge a codec

std::chrono::nanoseconds time_of(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

std::size_t phase_at(const LinkSchedule& link, std::chrono::nanoseconds time) {
  const auto& phases = link.phases();
  return static_cast<std::size_t>(
      std::find_if(phases.begin(), phases.end() - 1, [&](const LinkPhase& phase) { return time < phase.end; }) -
      phases.begin());
}

Policy fixed_policy(const Options& options, const std::string& codec) {
  Policy policy = Policy::uniform(codec);
  policy.bucket_bytes = parse_bytes(options.bucket);
  return policy;
}

Player fixed_player(const Options& options, const std::string& codec) {
  const std::string name = codec == "exact" ? "dense" : codec;
  return {name, {fixed_policy(options, codec)}, {name}};
}

Player clairvoyant(const LinkSchedule& link, const std::vector<Player>& fixed, const std::vector<std::size_t>& best) {
  Player player{.name = "clairvoyant", .policies = {}, .labels = {}};
  for (const Player& one : fixed) {
    player.policies.push_back(one.policies.front());
    player.labels.push_back(one.name);
  }
  player.pick = [link, best](std::chrono::nanoseconds time) { return best[phase_at(link, time)]; };
  return player;
}

// Greedy is auto without its delays: it decides after every step, by that step alone, and any gain is enough.
Player automatic(const Options& options, const std::string& name, bool greedy) {
  Policy policy = Policy::automatic({options.allow.begin(), options.allow.end()});
  policy.bucket_bytes = parse_bytes(options.bucket);
  if (greedy) {
    policy.auto_options = {.gain = 0, .dwell = 0, .window = 1, .cost = 1};
  }
  return {name, {policy}, {""}};
}

bool wanted(const Options& options, const std::string& name) {
  return options.players.empty() ||
         std::find(options.players.begin(), options.players.end(), name) != options.players.end();
}

}  // namespace

std::vector<PhaseTime> phase_times(const LinkSchedule& link, const std::vector<Step>& steps) {
  std::vector<std::vector<double>> seconds(link.phases().size());
  for (const Step& step : steps) {
    seconds[phase_at(link, time_of(step.start))].push_back(step.seconds);
  }
  std::vector<PhaseTime> result;
  for (const auto& samples : seconds) {
    double sum = 0;
    for (const double sample : samples) {
      sum += sample;
    }
    result.push_back({samples.size(), samples.empty() ? NAN : sum / static_cast<double>(samples.size()),
                      samples.empty() ? NAN : bench::median(samples)});
  }
  return result;
}

std::vector<std::size_t> best_by_phase(const LinkSchedule& link, const std::vector<Trace>& fixed) {
  std::vector<std::size_t> best;
  for (std::size_t phase = 0; phase < link.phases().size(); ++phase) {
    std::size_t quickest = best.empty() ? 0 : best.back();
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < fixed.size(); ++i) {
      const PhaseTime time = phase_times(link, fixed[i].steps)[phase];
      if (time.steps >= kEnoughSteps && time.mean_seconds < least) {
        least = time.mean_seconds;
        quickest = i;
      }
    }
    best.push_back(quickest);
  }
  return best;
}

double mean_rate(const LinkSchedule& link, double from_seconds, double to_seconds) {
  constexpr int kSamples = 20;
  double sum = 0;
  for (int i = 0; i < kSamples; ++i) {
    sum += link.rate_at(time_of(from_seconds + (to_seconds - from_seconds) * (i + 0.5) / kSamples));
  }
  return sum / kSamples;
}

const Trace* Comparison::find(const std::string& name) const {
  const auto found = std::find_if(traces.begin(), traces.end(), [&](const Trace& trace) { return trace.name == name; });
  return found == traces.end() ? nullptr : &*found;
}

Comparison compare(const Options& options) {
  Comparison result{.setting = {.link = LinkSchedule::parse(options.link),
                                .ranks = options.ranks,
                                .steps = options.steps,
                                .tensors = options.tensors,
                                .elements = options.elements,
                                .compute = parse_duration(options.compute)},
                    .levels = {"dense"},
                    .traces = {},
                    .planned = {}};
  result.levels.insert(result.levels.end(), options.allow.begin(), options.allow.end());
  const auto run = [&](const Player& player) {
    result.traces.push_back(play(result.setting, player));
    std::fprintf(stderr, "%s: %.1f s\n", player.name.c_str(), result.traces.back().total_seconds());
  };
  std::vector<Player> fixed{fixed_player(options, "exact")};
  for (const std::string& codec : options.allow) {
    fixed.push_back(fixed_player(options, codec));
  }
  std::erase_if(fixed, [&](const Player& player) { return !wanted(options, player.name); });
  for (const Player& player : fixed) {
    run(player);
  }
  const std::vector<Trace> fixed_traces = result.traces;
  if (!fixed.empty() && wanted(options, "clairvoyant")) {
    const auto best = best_by_phase(result.setting.link, fixed_traces);
    for (const std::size_t index : best) {
      result.planned.push_back(fixed[index].name);
    }
    run(clairvoyant(result.setting.link, fixed, best));
  }
  for (const char* name : {"auto", "greedy", "auto again"}) {
    if (wanted(options, name)) {
      run(automatic(options, name, std::string(name) == "greedy"));
    }
  }
  if (!result.planned.empty() && wanted(options, "clairvoyant again")) {
    Player again = clairvoyant(result.setting.link, fixed, best_by_phase(result.setting.link, fixed_traces));
    again.name = "clairvoyant again";
    run(again);
  }
  return result;
}

}  // namespace gradwire::changing_link

#include "choice/device_gate.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/median.hpp"

namespace gradwire::choice {
namespace {

// Words of an exchange. Medians of calls are nanoseconds, those of steps microseconds.
enum Word : std::size_t { kNoMemory, kInUse, kRival, kStepsBefore, kStepsNow, kWordsInUse };
static_assert(kWordsInUse == DeviceGate::kWords);

constexpr std::size_t kLeastTimes = 5;    // whose times are known; the first one of a block does not count
constexpr std::size_t kLeastSteps = 5;    // steps that a median needs
constexpr std::size_t kMostSteps = 16;    // steps that a median is taken over
constexpr std::size_t kKeptSteps = 1024;  // steps that are remembered until their times come
constexpr unsigned kTwice = 2;
constexpr unsigned kRoundsForTrials = 64;    // exchanges after which a comparison without its trials ends
constexpr unsigned kRoundsForTimes = 8;      // exchanges that a device may be behind its host
constexpr std::uint64_t kWatchedSteps = 64;  // steps after which the ranks give up comparing steps
constexpr unsigned kRoundsForAStep = 64;     // the longest step that is found has 4096 calls
constexpr unsigned kMostDoublings = 6;       // how often the time between two comparisons with a slower rival doubles
constexpr double kMostRatio = 100;

std::uint32_t word_of(double seconds, double unit) {
  return static_cast<std::uint32_t>(std::clamp(seconds / unit, 1.0, double{DeviceGate::kNoSample} - 1));
}

}  // namespace

DeviceGate::Class* DeviceGate::find(const ChoiceClass& what, std::size_t ways) {
  const auto known = classes_.find(what);
  if (known != classes_.end()) {
    return &known->second;
  }
  if (classes_.size() >= kMostClasses) {
    return nullptr;
  }
  Class& made = classes_[what];
  made.rivals.resize(ways);
  made.seconds.assign(ways, INFINITY);
  return &made;
}

DeviceGate::Turn DeviceGate::next(const ChoiceClass& what, std::uint64_t bytes, std::size_t ways) {
  Class* const found = find(what, ways);
  if (found == nullptr) {
    return {.decided = true};
  }
  Class& one = *found;
  if (one.sizes.size() < kMostSizes) {
    one.sizes.insert(bytes);
  }
  if (script_) {
    look_up(what, one);
  }
  auto& changes = choices_[what];
  if (changes.empty() || changes.back().way != one.way) {
    changes.push_back({one.calls, one.way});
  }
  ++one.calls;
  const Reason barred = one.barred != Reason::none ? one.barred
                        : one.untried              ? Reason::untried
                        : script_                  ? Reason::recorded
                                                   : Reason::none;
  return {.way = one.way, .decided = one.compared || script_, .barred = barred, .trial = trial_of(what, one, bytes)};
}

void DeviceGate::expect(const ChoiceClass& what, const std::vector<double>& ratios) {
  Class* const one = ratios.empty() ? nullptr : find(what, ratios.size());
  for (std::size_t way = 1; one != nullptr && way < std::min(ratios.size(), one->rivals.size()); ++way) {
    one->rivals[way].expected = ratios[way];
  }
}

void DeviceGate::look_up(const ChoiceClass& what, Class& one) const {
  const auto found = script_->find(what);
  if (found == script_->end() || one.barred != Reason::none) {
    return;
  }
  one.way = way_at(found->second, one.calls, one.rivals.size()).way;
}

std::optional<DeviceGate::Trial> DeviceGate::trial_of(const ChoiceClass& what, Class& one, std::uint64_t bytes) {
  if (!comparison_ || comparison_->phase != Phase::trials || comparison_->what != what ||
      !comparison_->sizes.contains(bytes)) {
    return std::nullopt;
  }
  Comparison& now = *comparison_;
  const Trial trial{.rival = now.rival, .rival_first = now.made % 2 == 0, .number = next_trial_++};
  ++one.trials;
  if (++now.made == kBlock) {
    enter(Phase::measuring);
  }
  return trial;
}

void DeviceGate::enter(Phase phase) noexcept {
  comparison_->phase = phase;
  comparison_->rounds = 0;
}

// The first trial of a block does not count: it may load kernels, take memory and connect ranks.
void DeviceGate::timed(std::uint64_t trial, double in_use_seconds, double rival_seconds) {
  if (!comparison_ || comparison_->phase < Phase::trials || trial <= comparison_->first_trial) {
    return;
  }
  comparison_->in_use_seconds.push_back(in_use_seconds);
  comparison_->rival_seconds.push_back(rival_seconds);
}

// A step with trials is longer, but a few such steps do not move the median, and few follow upon each other.
std::uint64_t DeviceGate::begin_step() {
  steps_known_ = true;
  steps_.push_back({.number = next_step_, .generation = generation_});
  if (steps_.size() > kKeptSteps) {
    steps_.pop_front();
  }
  return next_step_++;
}

void DeviceGate::step_took(std::uint64_t step, double seconds) {
  const auto found =
      std::find_if(steps_.rbegin(), steps_.rend(), [=](const Step& kept) { return kept.number == step; });
  if (found == steps_.rend() || found->generation != generation_) {
    return;
  }
  if (now_.size() == kMostSteps) {
    now_.erase(now_.begin());
  }
  now_.push_back(seconds);
}

// Begins to compare the rival that was compared least often, of those whose time has come.
void DeviceGate::begin_comparison() {
  const Rival* least = nullptr;
  for (const auto& [what, one] : classes_) {
    const bool affordable = static_cast<double>(one.trials + kBlock) <= kTrialShare * static_cast<double>(one.calls);
    if (!affordable || one.barred != Reason::none) {
      continue;
    }
    for (std::size_t way = 0; way < one.rivals.size(); ++way) {
      const Rival& rival = one.rivals[way];
      const bool sooner =
          least == nullptr || rival.comparisons < least->comparisons ||
          (rival.comparisons == least->comparisons && comparison_->what == what && rival.expected < least->expected);
      if (way != one.way && rival.next_at <= one.calls && rival.expected <= kHopeless && sooner) {
        least = &rival;
        comparison_ = {.what = what, .rival = static_cast<Way>(way), .sizes = one.sizes};
      }
    }
  }
  if (least != nullptr) {
    ++classes_.at(comparison_->what).rivals[comparison_->rival].comparisons;
  }
}

void DeviceGate::say(std::span<std::uint32_t> words, const HasMemory& has_memory) {
  std::fill_n(words.begin(), kWords, kNoSample);
  if (!comparison_ && !script_) {
    begin_comparison();
  }
  said_.reset();
  if (!comparison_) {
    return;
  }
  const Comparison& now = *comparison_;
  said_ = now.phase;
  if (now.phase == Phase::asking) {
    words[kNoMemory] = has_memory({.what = now.what, .rival = now.rival, .sizes = now.sizes}) ? 0 : 1;
  } else if (now.phase == Phase::measuring && now.in_use_seconds.size() >= kLeastTimes) {
    words[kInUse] = word_of(median(now.in_use_seconds), 1e-9);
    words[kRival] = word_of(median(now.rival_seconds), 1e-9);
  } else if (now.phase == Phase::watching && before_.size() >= kLeastSteps && now_.size() >= kLeastSteps) {
    words[kStepsBefore] = word_of(median(before_), 1e-6);
    words[kStepsNow] = word_of(median(now_), 1e-6);
  }
}

void DeviceGate::heard(std::span<const std::uint32_t> words) {
  if (!comparison_ || said_ != comparison_->phase) {
    return;  // the words are older than what is asked now
  }
  Class& one = classes_.at(comparison_->what);
  ++comparison_->rounds;
  switch (comparison_->phase) {
    case Phase::asking:
      if (words[kNoMemory] == 0) {
        comparison_->first_trial = next_trial_;
        one.untried = false;
        enter(Phase::trials);
      } else {
        one.untried = !one.compared;
        put_off(one, comparison_->rival, 1);
        comparison_.reset();
      }
      return;
    case Phase::trials:
      if (comparison_->rounds > kRoundsForTrials) {
        put_off(one, comparison_->rival, 1);
        comparison_.reset();
      }
      return;
    case Phase::measuring: return judge(one, words[kInUse], words[kRival]);
    case Phase::watching: return judge_steps(one, words[kStepsBefore], words[kStepsNow]);
  }
}

// `ratio` is the rival's time over that of the way in use: comparisons with a slow rival are dear, so they are rarer.
void DeviceGate::put_off(Class& one, Way rival, double ratio) {
  Rival& loser = one.rivals[rival];
  const double calls =
      std::ldexp(static_cast<double>(kBlock) / kTrialShare, static_cast<int>(std::min(loser.losses, kMostDoublings))) *
      std::clamp(ratio, 1.0, kMostRatio);
  loser.next_at = one.calls + static_cast<std::uint64_t>(calls);
  ++loser.losses;
}

void DeviceGate::judge(Class& one, std::uint32_t in_use, std::uint32_t rival) {
  const Way other = comparison_->rival;
  if (in_use == kNoSample || rival == kNoSample) {
    if (comparison_->rounds > kRoundsForTimes) {
      put_off(one, other, 1);
      comparison_.reset();
    }
    return;
  }
  one.compared = true;
  one.seconds[one.way] = in_use * 1e-9;
  one.seconds[other] = rival * 1e-9;
  const double ratio = static_cast<double>(rival) / in_use;
  if (other != 0 && ratio < kAdoptBelow) {
    change(one, other);
    if (steps_known_) {
      enter(Phase::watching);
      comparison_->begun_at = next_step_;
      return;
    }
  } else if (other == 0 && static_cast<double>(in_use) > kDropAbove * rival) {
    if (++one.strikes == kTwice) {
      put_off(one, one.way, ratio > 0 ? 1 / ratio : kMostRatio);
      change(one, 0);
    } else {
      one.rivals[0].next_at = one.calls;
    }
  } else {
    if (other == 0) {
      one.strikes = 0;
      one.rivals[one.way].losses = 0;
    }
    put_off(one, other, ratio);
  }
  comparison_.reset();
}

void DeviceGate::judge_steps(Class& one, std::uint32_t before, std::uint32_t now) {
  Comparison& watched = *comparison_;
  if (before == kNoSample || now == kNoSample) {
    const std::uint64_t steps = next_step_ - watched.begun_at;
    if (steps > kWatchedSteps || !steps_known_ || (steps == 0 && watched.rounds > kRoundsForAStep)) {
      comparison_.reset();  // the comparison of calls stands
    }
    return;
  }
  now_.clear();
  if (static_cast<double>(now) > kDropAbove * before) {
    watched.no_longer = 0;
    if (++watched.longer == kTwice) {
      put_off(one, one.way, 1);
      change(one, one.before);
      comparison_.reset();
    }
    return;
  }
  watched.longer = 0;
  if (++watched.no_longer == kTwice) {
    one.rivals[one.way].losses = 0;
    comparison_.reset();
  }
}

// A way that was just adopted rests on one block, so it is compared with the library again as soon as that is
// affordable.
void DeviceGate::change(Class& one, Way way) {
  one.before = one.way;
  one.way = way;
  one.strikes = 0;
  if (way != 0) {
    one.rivals[0] = {.next_at = one.calls, .losses = 0, .comparisons = one.rivals[0].comparisons};
  }
  ++generation_;
  before_ = std::exchange(now_, {});
}

void DeviceGate::bar(const ChoiceClass& what, Reason why) {
  const auto found = classes_.find(what);
  if (found == classes_.end()) {
    return;
  }
  found->second.barred = why;
  found->second.untried = false;
  if (found->second.way != 0) {
    change(found->second, 0);
  }
  if (comparison_ && comparison_->what == what) {
    comparison_.reset();
  }
}

std::optional<WaySeconds> DeviceGate::compared(const ChoiceClass& what) const {
  const auto found = classes_.find(what);
  if (found == classes_.end() || !found->second.compared) {
    return std::nullopt;
  }
  return found->second.seconds;
}

}  // namespace gradwire::choice

#include "choice/auto_call.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/median.hpp"
#include "choice/rounds.hpp"

namespace gradwire::choice {
namespace {

constexpr std::size_t kLeastTrials = 3;
constexpr std::size_t kCallsApart = 2;
constexpr std::size_t kMostTrials = 10;  // besides the first one, which finds everything cold
// How many times as long every other way must take for a comparison to end after so many trials, with the way in use or
// with another way. A machine may be slow for ten calls in a row, and the more of them go one way, the slower that way
// seems.
constexpr std::array<double, kMostTrials + 1> kClear{0, 2.5, 2.0, 1.4, 1.3, 1.25, 1.2, 1.15, 1.12, 1.1, 0};
constexpr std::array<double, kMostTrials + 1> kClearChange{0, 2.5, 2.5, 2.5, 2.3, 2.1, 2.0, 2.0, 2.0, 2.0, 0};
constexpr std::size_t kTrialsToOneLost = 5;  // the way that replaces another was faster in all trials but one in five
constexpr double kFarFrom = 2;  // with such a factor between its ways, a neighbour decides for sizes on its far side

constexpr std::uint64_t kLeastSeen = 16;  // calls before a look
constexpr std::size_t kMostSeen = 64;
constexpr double kStirred = 3;          // factor by which the time rose or fell
constexpr int kStirs = 2;               // looks in a row with a different time
constexpr unsigned kMostConfirmed = 3;  // each confirmation halves the share for comparisons

// Asking for the way of a call takes about so many seconds, and may take this share of the call's time.
constexpr double kAskSeconds = 4e-7;
constexpr double kAskShare = 2e-3;
constexpr std::uint64_t kMostUnasked = 63;

}  // namespace

std::uint8_t size_class(std::uint64_t bytes) noexcept {
  return static_cast<std::uint8_t>(bytes == 0 ? 0 : std::bit_width(bytes) - 1);
}

const AutoCall::Class* AutoCall::neighbour(const ChoiceClass& what, std::size_t ways) const {
  const Class* nearest = nullptr;
  int distance = 0;
  for (const auto& [other, one] : classes_) {
    const int away = std::abs(int{other.size} - int{what.size});
    const bool alike = other.function == what.function && other.dtype == what.dtype && other.rule == what.rule;
    if (alike && one.ways == ways && !one.costs.empty() && (nearest == nullptr || away < distance)) {
      nearest = &one;
      distance = away;
    }
  }
  return nearest;
}

// Small messages favour passing on and large ones compression, so a clear result for one size holds for all sizes
// beyond it.
void AutoCall::inherit(Class& made, std::uint8_t size, const Class& from, std::uint8_t from_size) {
  made.way = from.way;
  double closest = INFINITY;
  for (std::size_t way = 0; way < from.costs.size(); ++way) {
    closest = way == from.way ? closest : std::min(closest, from.costs[way] / from.costs[from.way]);
  }
  if (closest >= kFarFrom && (from.way == 0 ? size < from_size : size > from_size)) {
    made.comparison.reset();
    made.costs = from.costs;
    made.guessed = true;
  }
}

AutoCall::Class* AutoCall::find(const ChoiceClass& what, std::uint64_t bytes, std::size_t ways) {
  const auto known = classes_.find(what);
  if (known != classes_.end()) {
    return &known->second;
  }
  if (classes_.size() >= kMostClasses) {
    return nullptr;
  }
  const Class* near = neighbour(what, ways);
  const auto at =
      std::find_if(classes_.begin(), classes_.end(), [&](const auto& entry) { return &entry.second == near; });
  Class made;
  made.ways = ways;
  made.excluded.resize(ways);
  if (!script_) {
    made.comparison.emplace(Comparison{}).costs.resize(ways);
    if (bytes > kMostCopied) {
      bar(made, Reason::untried);
    } else if (near != nullptr) {
      inherit(made, what.size, *near, at->first.size);
    }
  }
  return &classes_.emplace(what, std::move(made)).first->second;
}

std::span<const double> AutoCall::begin(const ChoiceClass& what, std::uint64_t bytes, std::size_t ways,
                                        const CanCopy& can_copy) {
  question_.clear();
  class_of_call_ = what;
  current_ = find(what, bytes, ways);
  if (current_ == nullptr) {
    return {};
  }
  Class& one = *current_;
  one.bytes = bytes;
  one.begun = false;
  if (script_ || one.left > 0 || one.apart > 0 || one.barred != Reason::none) {
    return {};
  }
  if (one.comparison && bytes <= kMostCopied) {
    one.begun = true;
    question_ = {can_copy() ? 0.0 : 1.0, -own_exchange_seconds_};
  } else if (looks(one)) {
    question_ = {one.seen.empty() ? 0 : -upper_median(one.seen), -own_exchange_seconds_};
  }
  return question_;
}

void AutoCall::answer(std::span<const double> worst, double seconds) {
  Class& one = *current_;
  exchange_ = -worst[1];
  own_exchange_seconds_ = seconds;
  if (!one.begun) {
    look(one, -worst[0]);
  } else if (worst[0] > 0) {
    bar(one, Reason::untried);
  }
}

void AutoCall::bar(Class& one, Reason why) {
  one.barred = why;
  one.way = 0;
  one.guessed = false;
  one.begun = false;
  one.comparison.reset();
  one.costs.clear();  // neighbours learn nothing from them
}

void AutoCall::bar(const ChoiceClass& what, Reason why) {
  const auto found = classes_.find(what);
  if (found != classes_.end()) {
    bar(found->second, why);
  }
}

bool AutoCall::looks(const Class& one) const {
  return !one.comparison && one.turns >= kLeastSeen && (one.spent - one.looked_at) * options_.look_cost >= exchange_;
}

// The quickest rank's time counts, because that rank waited least for others.
void AutoCall::look(Class& one, double quickest) {
  one.seen.clear();
  one.turns = 0;
  one.looked_at = one.spent;
  if (quickest <= 0) {
    return;
  }
  if (one.usual == 0) {
    one.usual = quickest;
  }
  const bool other = quickest > one.usual * kStirred || quickest * kStirred < one.usual;
  one.stirred = other ? one.stirred + 1 : 0;
  if (due(one)) {
    one.comparison.emplace(Comparison{}).costs.resize(one.ways);
  }
}

void AutoCall::concluded(std::span<const double> seconds, double copying) {
  if (current_ == nullptr || !current_->comparison) {
    return;
  }
  Class& one = *current_;
  one.copying = copying / static_cast<double>(one.bytes);
  for (std::size_t way = 1; way < one.ways; ++way) {
    one.excluded[way] = one.excluded[way] || !std::isfinite(seconds[way]);
  }
  if (std::count(one.excluded.begin(), one.excluded.end(), true) + 1 == static_cast<std::ptrdiff_t>(one.ways)) {
    bar(one, Reason::inaccurate);
    return;
  }
  count_trial(one, seconds);
}

void AutoCall::count_trial(Class& one, std::span<const double> seconds) {
  Comparison& comparison = *one.comparison;
  comparison.trial_seconds = 0;
  for (std::size_t way = 0; way < one.ways; ++way) {
    const double took = one.excluded[way] ? INFINITY : seconds[way];
    comparison.costs[way].push_back(took / static_cast<double>(one.bytes));
    comparison.trial_seconds += one.excluded[way] ? 0 : took;
  }
  // The first trial finds cold buffers and ranks that are not connected yet. It counts only if another trial would cost
  // too much.
  if (!std::exchange(comparison.warm, true) && comparison.trial_seconds < options_.expensive_seconds) {
    for (auto& costs : comparison.costs) {
      costs.clear();
    }
    return;
  }
  ++comparison.trials;
  if (const auto chosen_way = verdict(one)) {
    decide(one, *chosen_way);
    return;
  }
  // If the result is not clear at once, the trials stand apart, so that they do not all see the same moment of a
  // machine.
  if (comparison.trials > kLeastTrials) {
    // Calls that pass meanwhile need not be asked for; compressed calls come here each time.
    (one.way == 0 ? one.left : one.apart) = kCallsApart * (comparison.trials - kLeastTrials);
    note(one, one.way);
    one.calls += one.left + one.apart;
  }
}

std::optional<Way> AutoCall::verdict(const Class& one) const {
  const Comparison& comparison = *one.comparison;
  const bool expensive = comparison.trial_seconds >= options_.expensive_seconds;
  if (comparison.trials < kLeastTrials && !expensive) {
    return std::nullopt;
  }
  std::vector<double> costs;
  for (std::size_t way = 0; way < one.ways; ++way) {
    costs.push_back(one.excluded[way] ? INFINITY : upper_median(comparison.costs[way]));
  }
  const auto best = std::min_element(costs.begin(), costs.end());
  const auto& table = best - costs.begin() == one.way ? kClear : kClearChange;
  const double clear = table[comparison.trials];
  for (auto cost = costs.begin(); cost != costs.end(); ++cost) {
    if (cost != best && *cost < clear * *best) {
      return std::nullopt;
    }
  }
  return chosen(one, costs, static_cast<Way>(best - costs.begin()));
}

// Compression must pay: clearly and in nearly all trials to be chosen, and half as clearly to be kept.
Way AutoCall::chosen(const Class& one, const std::vector<double>& costs, Way quickest) const {
  const auto& samples = one.comparison->costs;
  const std::size_t trials = one.comparison->trials;
  const auto beats = [&](Way way, Way other, double gain, std::size_t may_lose) {
    std::size_t lost = 0;
    for (std::size_t trial = 0; trial < trials; ++trial) {
      lost += samples[way][trial] < samples[other][trial] ? 0 : 1;
    }
    return costs[way] < costs[other] * (1 - gain) && lost <= may_lose;
  };
  if (quickest != one.way && beats(quickest, one.way, options_.gain, trials / kTrialsToOneLost)) {
    return quickest;
  }
  return one.way != 0 && beats(one.way, 0, options_.gain / 2, trials / 2) ? one.way : Way{0};
}

void AutoCall::decide(Class& one, Way way) {
  one.costs.clear();
  for (std::size_t of = 0; of < one.ways; ++of) {
    one.costs.push_back(one.excluded[of] ? INFINITY : upper_median(one.comparison->costs[of]));
  }
  one.confirmed = way == one.way ? std::min(one.confirmed + 1, kMostConfirmed) : 0;
  one.way = way;
  one.guessed = false;
  ++one.decisions;
  one.trials = one.comparison->trials + 1;
  one.comparison.reset();
  one.spent = one.looked_at = one.usual = 0;
  one.stirred = 0;
  one.seen.clear();
  one.turns = 0;
}

// A comparison costs all ways of its trials, the copies for them, and three exchanges for each trial: one before each
// way, and one for the times. An excluded way is not made any more, so it costs nothing.
bool AutoCall::due(const Class& one) const {
  double trial = 3 * exchange_ + one.copying * static_cast<double>(one.bytes);
  for (std::size_t way = 0; way < one.ways; ++way) {
    trial += one.excluded[way] ? 0 : one.seconds(way);
  }
  const double expected = static_cast<double>(one.trials) * trial;
  // Each comparison that finds nothing new halves the share that the next one may take.
  const double patience = std::ldexp(options_.cost, -static_cast<int>(one.confirmed));
  const double haste = std::ldexp(options_.hasty_cost, -static_cast<int>(one.confirmed));
  // A first choice to compress rests on one moment of the machine, so it is compared again soon, once.
  const bool hasty = one.stirred >= kStirs || (one.way != 0 && one.decisions == 1);
  const double share = hasty ? std::max(patience, haste) : patience;
  return expected <= share * one.spent;
}

AutoCall::Turn AutoCall::turn() {
  if (current_ == nullptr) {
    return {.decided = true};
  }
  Class& one = *current_;
  if (one.left > 0) {
    --one.left;
    return {.way = one.way, .decided = !one.comparison, .barred = one.barred, .left = &one.left};
  }
  if (one.apart > 0) {
    --one.apart;
    return {.way = one.way, .decided = !one.comparison};
  }
  if (script_) {
    return replayed(one);
  }
  if (one.barred != Reason::none) {
    note(one, 0);
    one.left = kMostUnasked;
    one.calls += 1 + one.left;
    return {.decided = true, .barred = one.barred, .left = &one.left};
  }
  if (one.comparison) {  // the job gets the library's results during a comparison
    note(one, 0);
    ++one.calls;
    if (!one.begun) {
      return {.barred = Reason::untried};
    }
    // The order alternates from trial to trial, so that neither a machine that slows down nor caches favour one way.
    const bool turned = (one.comparison->trials + (one.comparison->warm ? 1 : 0)) % 2 != 0;
    return {.trial = true, .passed_first = !turned};
  }
  note(one, one.way);
  const double seconds = one.seconds(one.way);
  const double unasked = one.way == 0 ? kAskSeconds / (kAskShare * seconds) : 0;
  one.left = static_cast<std::uint64_t>(std::min(unasked, static_cast<double>(kMostUnasked)));
  one.calls += 1 + one.left;
  one.spent += seconds * static_cast<double>(1 + one.left);
  ++one.turns;
  if (due(one)) {
    one.comparison.emplace(Comparison{}).costs.resize(one.ways);
  }
  return {.way = one.way, .timed = true, .decided = true, .left = &one.left};
}

WayAt way_at(const std::vector<WayChange>& changes, std::uint64_t call, std::size_t ways) noexcept {
  const auto later = std::upper_bound(changes.begin(), changes.end(), call,
                                      [](std::uint64_t at, const WayChange& change) { return at < change.call; });
  WayAt found;
  if (later != changes.begin() && std::prev(later)->way < ways) {
    found.way = std::prev(later)->way;
  }
  if (later != changes.end()) {
    found.until = later->call;
  }
  return found;
}

AutoCall::Turn AutoCall::replayed(Class& one) {
  const auto found = script_->find(class_of_call_);
  const WayAt at = found == script_->end() ? WayAt{} : way_at(found->second, one.calls, one.ways);
  const std::uint64_t until = std::min(at.until, one.calls + 1 + kMostUnasked);
  one.way = at.way;
  note(one, one.way);
  one.left = one.way == 0 ? until - one.calls - 1 : 0;
  one.calls += 1 + one.left;
  return {.way = one.way, .decided = true, .left = &one.left};
}

void AutoCall::note(Class& one, Way way) {
  auto& changes = choices_[class_of_call_];
  if (changes.empty() || changes.back().way != way) {
    changes.push_back({one.calls, way});
  }
}

void AutoCall::measured(double seconds) {
  if (current_ == nullptr) {
    return;
  }
  Class& one = *current_;
  if (one.seen.size() < kMostSeen) {
    one.seen.push_back(seconds / static_cast<double>(one.bytes));
  }
}

std::optional<WaySeconds> AutoCall::compared(const ChoiceClass& what) const {
  const auto found = classes_.find(what);
  if (found == classes_.end() || found->second.costs.empty() || found->second.guessed) {
    return std::nullopt;
  }
  WaySeconds seconds;
  for (std::size_t way = 0; way < found->second.costs.size(); ++way) {
    seconds.push_back(found->second.seconds(way));
  }
  return seconds;
}

}  // namespace gradwire::choice

#include "choice/equal_ways.hpp"

#include <algorithm>
#include <utility>

#include "base/median.hpp"

namespace gradwire::choice {
namespace {

constexpr std::size_t kLeastOfAWay = 5;  // times that a median needs

std::uint32_t median_word(const std::vector<double>& seconds) {
  if (seconds.size() < kLeastOfAWay) {
    return EqualWays::kNoSample;
  }
  return static_cast<std::uint32_t>(std::clamp(median(seconds) * 1e9, 1.0, double{EqualWays::kNoSample} - 1));
}

}  // namespace

EqualWays::Turn EqualWays::next(std::size_t kind) {
  kinds_.resize(std::max(kinds_.size(), kind + 1));
  Kind& one = kinds_[kind];
  if (one.decided && one.calls >= kAgain) {
    one.decided = false;
    one.calls = 0;
    one.rounds = 0;
    ++one.comparison;
    one.seconds = {};
  }
  const std::uint64_t call = one.calls++;
  if (one.decided) {
    return {.second = one.second};
  }
  if (call >= kUntimed + kTurns) {
    return {.second = one.second};  // until the ranks have heard their times
  }
  Turn turn{.second = call % 2 == 1};
  if (call >= kUntimed) {
    turn.timed = {.kind = kind, .second = turn.second, .comparison = one.comparison};
  }
  return turn;
}

bool EqualWays::second(std::size_t kind) const noexcept { return kind < kinds_.size() && kinds_[kind].second; }

void EqualWays::timed(const Timed& call, double seconds) {
  Kind& one = kinds_[call.kind];
  if (!one.decided && one.comparison == call.comparison) {
    one.seconds[call.second ? 1 : 0].push_back(seconds);
  }
}

bool EqualWays::asks() const noexcept { return std::any_of(kinds_.begin(), kinds_.end(), waits); }

void EqualWays::say(std::span<std::uint32_t> words) {
  std::fill(words.begin(), words.end(), kNoSample);
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    Kind& one = kinds_[kind];
    one.said = waits(one);
    if (one.said) {
      words[2 * kind] = median_word(one.seconds[0]);
      words[2 * kind + 1] = median_word(one.seconds[1]);
    }
  }
}

void EqualWays::heard(std::span<const std::uint32_t> words) {
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    Kind& one = kinds_[kind];
    if (!std::exchange(one.said, false)) {
      continue;
    }
    const std::uint32_t by_first = words[2 * kind];
    const std::uint32_t by_second = words[2 * kind + 1];
    if (by_first != kNoSample && by_second != kNoSample) {
      decide(one, by_second < kAdoptBelow * by_first);
    } else if (++one.rounds == kMostRounds) {
      decide(one, false);
    }
  }
}

void EqualWays::decide(Kind& kind, bool second) {
  kind.decided = true;
  kind.second = second;
  kind.calls = 0;
  kind.seconds = {};
}

}  // namespace gradwire::choice

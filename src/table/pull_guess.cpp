#include "table/pull_guess.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "table/hash_ring.hpp"
#include "table/id_codec.hpp"

namespace gradwire::table {
namespace {

constexpr std::uint32_t kLongestPause = 64;  // steps

std::uint64_t hash_of(std::span<const std::uint64_t> ids) noexcept {
  std::uint64_t hash = mix(ids.size());
  for (const std::uint64_t id : ids) {
    hash = mix(hash ^ id);
  }
  return hash;
}

/// Returns how many ids are in both; each is ascending.
std::size_t in_both(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) noexcept {
  std::size_t count = 0;
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    count += *x == *y ? 1 : 0;
    const bool a_is_behind = *x <= *y;
    y += *y <= *x ? 1 : 0;
    x += a_is_behind ? 1 : 0;
  }
  return count;
}

}  // namespace

std::uint64_t PullGuess::Step::bytes() const noexcept {
  constexpr std::uint64_t kIndexBytes = 64;  // of the entry by hash
  return ids.capacity() + sizeof(Step) + kIndexBytes;
}

void PullGuess::score() {
  if (guess_.empty()) {
    return;
  }
  const std::size_t right = in_both(guess_, step_);
  hits_ += right;
  misses_ += guess_.size() - right;
  if (2 * right >= guess_.size()) {
    next_pause_ = 1;
  } else {
    pause_ = next_pause_;
    next_pause_ = std::min(2 * next_pause_, kLongestPause);
  }
}

void PullGuess::remember(std::uint64_t hash) {
  Step step{.hash = hash, .count = step_.size(), .ids = {}};
  encode_ids(step_, step.ids);
  step.ids.shrink_to_fit();
  bytes_ += step.bytes();
  steps_.push_back(std::move(step));
  last_[hash] = forgotten_ + steps_.size() - 1;
  for (; bytes_ > most_bytes_ && !steps_.empty(); ++forgotten_) {
    const auto at = last_.find(steps_.front().hash);
    if (at != last_.end() && at->second == forgotten_) {
      last_.erase(at);
    }
    bytes_ -= steps_.front().bytes();
    steps_.pop_front();
  }
}

/// Returns the ids of the step that followed the last one of this hash; none if there was none.
std::vector<std::uint64_t> PullGuess::ids_after(std::uint64_t hash) const {
  const auto at = last_.find(hash);
  if (at == last_.end() || at->second + 1 >= forgotten_ + steps_.size()) {
    return {};
  }
  const Step& next = steps_[at->second + 1 - forgotten_];
  wire::ByteReader in(next.ids, "the ids of an earlier step");
  return decode_ids(in, next.count, std::numeric_limits<std::uint64_t>::max());
}

std::vector<std::uint64_t> PullGuess::end_step() {
  if (step_.empty()) {
    return {};
  }
  std::sort(step_.begin(), step_.end());
  step_.erase(std::unique(step_.begin(), step_.end()), step_.end());
  score();
  const std::uint64_t hash = hash_of(step_);
  guess_ = ids_after(hash);
  if (guess_.empty() && 2 * in_both(step_, before_) >= step_.size()) {
    guess_ = step_;
  }
  remember(hash);
  before_ = std::exchange(step_, {});
  if (pause_ > 0) {
    --pause_;
    guess_.clear();
  }
  return guess_;
}

}  // namespace gradwire::table

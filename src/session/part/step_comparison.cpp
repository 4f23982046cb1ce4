#include "session/part/step_comparison.hpp"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/elapsed.hpp"
#include "base/units.hpp"
#include "exchange/peers.hpp"
#include "observe/record.hpp"

namespace gradwire::session {
namespace {

constexpr const char* kWhat = "the comparison of steps";

}  // namespace

StepComparison::~StepComparison() {
  constexpr std::chrono::seconds kLongestWait{2};
  if (posted_) {  // the other ranks' messages would otherwise reach the next user of the transport
    posted_->wait_for(kLongestWait);
  }
}

void StepComparison::end_step(std::uint64_t step) {
  const bool blocks = asks(step, true);
  if (!posted_ && !blocks && !asks(step, false)) {
    return;
  }
  const std::uint64_t ticks = observe::ticks();
  const auto begin = std::chrono::steady_clock::now();
  if (posted_) {
    finish_posted();
  }
  if (blocks) {
    append(step, [](const ComparedPart&) { return true; });
    conclude(gather());
  } else if (asks(step, false)) {
    post(step);
  }
  seconds_.fetch_add(seconds_since(begin), std::memory_order_relaxed);
  if (ticks != 0) {
    observe::record_since(ticks, {.source = runner_.info().source,
                                  .step = static_cast<std::uint32_t>(step),
                                  .kind = observe::EventKind::compare});
  }
}

void StepComparison::reset_counts() noexcept {
  count_.store(0, std::memory_order_relaxed);
  seconds_.store(0, std::memory_order_relaxed);
}

bool StepComparison::asks(std::uint64_t step, bool blocking) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const Part& part) { return part.compared->blocks() == blocking && part.compared->due(step); });
}

void StepComparison::append(std::uint64_t step, const std::function<bool(const ComparedPart&)>& takes_part) {
  step_ = step;
  numbers_ = {static_cast<double>(step), gather_seconds_};
  riders_.clear();
  begins_.clear();
  for (Part& part : parts_) {
    if (takes_part(*part.compared) && part.compared->rides(step)) {
      riders_.push_back(&part);
      numbers_.push_back(part.seconds);
      begins_.push_back(numbers_.size());
      part.compared->append(numbers_);
    }
  }
  begins_.push_back(numbers_.size() + 1);
}

StepComparison::Numbers StepComparison::gather() {
  const auto begin = std::chrono::steady_clock::now();
  Numbers all = exchange::gather_numbers(runner_.peers(), numbers_, kWhat, exchange::Sizes::any);
  gather_seconds_ = seconds_since(begin);
  return all;
}

void StepComparison::post(std::uint64_t step) {
  append(step, [](const ComparedPart& part) { return !part.blocks(); });
  const auto begin = std::chrono::steady_clock::now();
  posted_ = runner_.peers().post_all_gather(exchange::bytes_of(numbers_));
  if (!posted_) {
    conclude(gather());
    return;
  }
  posting_seconds_ = seconds_since(begin);
}

void StepComparison::finish_posted() {
  const auto begin = std::chrono::steady_clock::now();
  const Numbers all = exchange::numbers_of(runner_.peers().complete(std::move(posted_), kWhat));
  gather_seconds_ = posting_seconds_ + seconds_since(begin);
  conclude(all);
}

// The parts that are due differ from step to step, so ranks at different steps may send different numbers of values.
void StepComparison::conclude(const Numbers& all) {
  count_.fetch_add(1, std::memory_order_relaxed);
  double gathering = all[0].size() > 1 ? all[0][1] : 0;
  for (const std::vector<double>& theirs : all) {
    if (theirs.size() != numbers_.size() || theirs[0] != numbers_[0]) {
      throw Error(ErrorCode::mismatch, "ranks compare steps " + format_number(numbers_[0]) + " and " +
                                           (theirs.empty() ? "none" : format_number(theirs[0])) +
                                           "; make the same calls on every rank, with the same version of gradwire");
    }
    gathering = std::min(gathering, theirs[1]);
  }
  ComparedPart::Compared compared{.step = step_, .ranks = {}, .gather_seconds = gathering};
  for (std::size_t i = 0; i < riders_.size(); ++i) {
    compared.ranks.clear();
    compared.seconds = 0;
    for (const std::vector<double>& theirs : all) {
      compared.seconds = std::max(compared.seconds, gathering + theirs[begins_[i] - 1]);
      compared.ranks.push_back(std::span(theirs).subspan(begins_[i], begins_[i + 1] - 1 - begins_[i]));
    }
    const auto begin = std::chrono::steady_clock::now();
    riders_[i]->compared->take(compared);
    riders_[i]->seconds = seconds_since(begin);
  }
}

}  // namespace gradwire::session

#include "session/step_comparison.hpp"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/elapsed.hpp"
#include "base/units.hpp"
#include "observe/record.hpp"
#include "session/peers.hpp"

namespace gradwire::session {

void StepComparison::end_step(std::uint64_t step) {
  if (std::none_of(parts_.begin(), parts_.end(), [&](const ComparedPart* part) { return part->due(step); })) {
    return;
  }
  const std::uint64_t ticks = observe::ticks();
  const auto begin = std::chrono::steady_clock::now();
  compare(step);
  last_seconds_ = seconds_since(begin);
  count_.store(count() + 1, std::memory_order_relaxed);
  seconds_.store(seconds() + last_seconds_, std::memory_order_relaxed);
  if (ticks != 0) {
    observe::record_since(ticks, {.source = runner_.info().source,
                                  .step = static_cast<std::uint32_t>(step),
                                  .kind = observe::EventKind::compare});
  }
}

void StepComparison::compare(std::uint64_t step) {
  std::vector<double> numbers{static_cast<double>(step), last_seconds_, gather_seconds_};
  std::vector<ComparedPart*> parts;
  std::vector<std::size_t> begins;
  for (ComparedPart* part : parts_) {
    if (part->rides(step)) {
      parts.push_back(part);
      begins.push_back(numbers.size());
      part->append(numbers);
    }
  }
  begins.push_back(numbers.size());
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::vector<double>> all = gather_numbers(runner_.peers(), numbers, "the comparison of steps");
  gather_seconds_ = seconds_since(begin);
  ComparedPart::Compared compared{.step = step, .ranks = {}, .gather_seconds = all[0][2]};
  for (const std::vector<double>& theirs : all) {
    if (theirs[0] != numbers[0]) {
      throw Error(ErrorCode::mismatch, "ranks compare steps " + std::to_string(step) + " and " +
                                           format_number(theirs[0]) + "; make the same calls on every rank");
    }
    compared.seconds = std::max(compared.seconds, theirs[1]);
    compared.gather_seconds = std::min(compared.gather_seconds, theirs[2]);
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    compared.ranks.clear();
    for (const std::vector<double>& theirs : all) {
      compared.ranks.push_back(std::span(theirs).subspan(begins[i], begins[i + 1] - begins[i]));
    }
    parts[i]->take(compared);
  }
}

}  // namespace gradwire::session

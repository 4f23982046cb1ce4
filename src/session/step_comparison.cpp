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
  if (std::none_of(parts_.begin(), parts_.end(), [&](const Part& part) { return part.compared->due(step); })) {
    return;
  }
  const std::uint64_t ticks = observe::ticks();
  const auto begin = std::chrono::steady_clock::now();
  compare(step);
  count_.store(count() + 1, std::memory_order_relaxed);
  seconds_.store(seconds() + seconds_since(begin), std::memory_order_relaxed);
  if (ticks != 0) {
    observe::record_since(ticks, {.source = runner_.info().source,
                                  .step = static_cast<std::uint32_t>(step),
                                  .kind = observe::EventKind::compare});
  }
}

void StepComparison::compare(std::uint64_t step) {
  std::vector<double> numbers{static_cast<double>(step), gather_seconds_};
  std::vector<Part*> parts;
  std::vector<std::size_t> begins;
  for (Part& part : parts_) {
    if (part.compared->rides(step)) {
      parts.push_back(&part);
      numbers.push_back(part.seconds);
      begins.push_back(numbers.size());
      part.compared->append(numbers);
    }
  }
  begins.push_back(numbers.size() + 1);
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::vector<double>> all = gather_steps(numbers);
  gather_seconds_ = seconds_since(begin);
  const auto least = [](const std::vector<double>& a, const std::vector<double>& b) { return a[1] < b[1]; };
  ComparedPart::Compared compared{
      .step = step, .ranks = {}, .gather_seconds = (*std::min_element(all.begin(), all.end(), least))[1]};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    compared.ranks.clear();
    compared.seconds = 0;
    for (const std::vector<double>& theirs : all) {
      compared.seconds = std::max(compared.seconds, compared.gather_seconds + theirs[begins[i] - 1]);
      compared.ranks.push_back(std::span(theirs).subspan(begins[i], begins[i + 1] - 1 - begins[i]));
    }
    const auto took = std::chrono::steady_clock::now();
    parts[i]->compared->take(compared);
    parts[i]->seconds = seconds_since(took);
  }
}

// Who is due differs from step to step, and so do the sizes of what ranks at other steps send.
std::vector<std::vector<double>> StepComparison::gather_steps(const std::vector<double>& numbers) {
  const std::vector<std::vector<double>> all =
      gather_numbers(runner_.peers(), numbers, "the comparison of steps", Sizes::any);
  for (const std::vector<double>& theirs : all) {
    if (theirs.empty() || theirs[0] != numbers[0] || theirs.size() != numbers.size()) {
      throw Error(ErrorCode::mismatch, "ranks compare steps " + format_number(numbers[0]) + " and " +
                                           (theirs.empty() ? "none" : format_number(theirs[0])) +
                                           "; make the same calls on every rank, with the same version of gradwire");
    }
  }
  return all;
}

}  // namespace gradwire::session

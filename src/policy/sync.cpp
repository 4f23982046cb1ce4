#include "policy/sync.hpp"

#include <vector>

#include "base/units.hpp"
#include "policy/rule.hpp"

namespace gradwire::policy {
namespace {

std::string outer_text(const Sync::Outer& outer, int digits) {
  return "outer lr " + format_number(outer.learning_rate, digits) + ", momentum " +
         format_number(outer.momentum, digits);
}

std::string every_problem(const Sync& sync) {
  if (sync.every < 1 || sync.every > kMostEvery) {
    return "every is " + std::to_string(sync.every) + "; write the steps between two synchronisations, 1 to " +
           std::to_string(kMostEvery);
  }
  if (sync.offset >= sync.every) {
    return "offset is " + std::to_string(sync.offset) + ", beyond every = " + std::to_string(sync.every) +
           "; write a number of steps below it";
  }
  if (!sync.outer) {
    return {};
  }
  if (sync.every < kLeastStepsOfOuter) {
    return "outer with every = " + std::to_string(sync.every) + ": outer momentum needs " +
           std::to_string(kLeastStepsOfOuter) +
           " local steps or more; raise every, or leave outer out to average parameters";
  }
  if (!(sync.outer->learning_rate > 0 && sync.outer->learning_rate <= 10)) {
    return "lr of outer is " + format_number(sync.outer->learning_rate, 3) + "; write a number above 0, such as 0.7";
  }
  if (!(sync.outer->momentum >= 0 && sync.outer->momentum < 1)) {
    return "momentum of outer is " + format_number(sync.outer->momentum, 3) +
           "; write a number from 0 to below 1, such as 0.9";
  }
  return {};
}

}  // namespace

std::string problem_of(const Sync& sync) {
  const bool every = sync.mode == Sync::Mode::every;
  const bool stale = sync.mode == Sync::Mode::async || sync.mode == Sync::Mode::rows;
  if (!every && (sync.every != 1 || sync.offset != 0 || sync.stagger || sync.outer)) {
    return "offset, stagger and outer belong to { every = N }; remove them or write every";
  }
  if (!stale && sync.staleness != 0) {
    return "staleness belongs to { async = true } and { rows = true }; remove it or write one of them";
  }
  if (sync.mode == Sync::Mode::rows && sync.from_step != 0) {
    return "rows cannot begin later: a table lies with its owners from the start; remove from_step";
  }
  if (sync.mode != Sync::Mode::rows && (!sync.store.empty() || sync.memory != 0)) {
    return "store and memory belong to { rows = true }; remove them or write rows";
  }
  if (sync.store.empty() != (sync.memory == 0)) {
    return "store and memory belong together; write store = \"file:DIR\" and memory = \"512MiB\"";
  }
  const std::uint32_t most = sync.mode == Sync::Mode::rows ? kMostRowStaleness : kMostStaleness;
  if (stale && sync.staleness > most) {
    return "staleness is " + std::to_string(sync.staleness) + "; write a number of steps from 0 to " +
           std::to_string(most);
  }
  return every ? every_problem(sync) : std::string();
}

bool is_step(const Sync& sync) {
  return sync.mode == Sync::Mode::step || (sync.mode == Sync::Mode::every && sync.every == 1);
}

std::string to_string(const Sync& sync, int digits) {
  if (is_step(sync)) {
    return "step";
  }
  std::string text;
  switch (sync.mode) {
    case Sync::Mode::step: break;
    case Sync::Mode::every:
      text = "every " + std::to_string(sync.every) + (sync.outer ? " (" + outer_text(*sync.outer, digits) + ")" : "");
      text += sync.offset != 0 ? ", offset " + std::to_string(sync.offset) : "";
      text += sync.stagger ? ", staggered" : "";
      break;
    case Sync::Mode::async: text = "async, staleness " + std::to_string(sync.staleness); break;
    case Sync::Mode::rows: text = "rows, staleness " + std::to_string(sync.staleness); break;
  }
  return sync.from_step != 0 ? text + ", from step " + std::to_string(sync.from_step) : text;
}

std::string bound_of(const Sync& sync) {
  if (is_step(sync)) {
    return "none";
  }
  return sync.mode == Sync::Mode::every ? std::to_string(sync.every) + " local steps"
                                        : std::to_string(sync.staleness) + " steps";
}

bool syncs_parameters(const Sync& sync, std::uint32_t offset, std::uint64_t step) {
  return sync.mode == Sync::Mode::every && active(sync, step) && step > sync.from_step &&
         (step - sync.from_step + offset) % sync.every == 0;
}

bool precedes_local_steps(const Sync& sync, std::uint64_t step) {
  return sync.mode == Sync::Mode::every && !is_step(sync) && step + 1 == sync.from_step;
}

TensorPolicy policy_of(const Policy& policy, const TensorInfo& tensor) {
  const std::vector<RuleMatcher> matchers = compile_rules(policy);
  for (std::size_t rule = 0; rule < matchers.size(); ++rule) {
    if (matchers[rule].matches(tensor)) {
      return policy.rules[rule].policy;
    }
  }
  return policy.defaults;
}

}  // namespace gradwire::policy

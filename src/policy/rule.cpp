#include "policy/rule.hpp"

#include <limits>

#include "base/units.hpp"
#include "gradwire/error.hpp"

namespace gradwire::policy {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

// An absent condition covers everything, a given one only its equal.
template <typename T>
bool covers_value(const std::optional<T>& earlier, const std::optional<T>& later) {
  return !earlier || earlier == later;
}

bool contains(const OrderRange& range, std::uint64_t order) { return order >= range.first && order <= range.last; }

// A rule without a glob also matches what has no name, so no glob covers it.
bool covers_glob(const std::optional<Glob>& earlier, const std::optional<Glob>& later, Glob::Effort& effort) {
  return !earlier || (later && earlier->contains(*later, effort));
}

bool matches_name(const std::optional<Glob>& glob, const std::string& name) {
  return !glob || (!name.empty() && glob->matches(name));
}

bool covers_range(const std::optional<OrderRange>& earlier, const std::optional<OrderRange>& later) {
  return !earlier || (later && contains(*earlier, later->first) && contains(*earlier, later->last));
}

}  // namespace

std::uint64_t tensor_bytes(const TensorInfo& tensor) noexcept {
  const std::uint64_t each = element_bytes(tensor.dtype);
  return each != 0 && tensor.count > kMax / each ? kMax : tensor.count * each;
}

RuleMatcher::RuleMatcher(const RuleMatch& match) : match_(match) {
  if (match.glob) {
    glob_.emplace(*match.glob);
  }
  if (match.communicator_name) {
    communicator_.emplace(*match.communicator_name);
  }
  if (match.min_bytes.value_or(0) > match.max_bytes.value_or(kMax)) {
    throw Error(ErrorCode::invalid_argument, "min_bytes (" + format_bytes(*match.min_bytes) + ") is above max_bytes (" +
                                                 format_bytes(*match.max_bytes) +
                                                 "), so no tensor can match; swap them or remove one");
  }
  if (match.order && match.order->first > match.order->last) {
    throw Error(ErrorCode::invalid_argument, "the range of order is backwards, so no call can match; swap its ends");
  }
}

bool RuleMatcher::matches(const TensorInfo& tensor) const {
  const std::uint64_t bytes = tensor_bytes(tensor);
  return bytes >= match_.min_bytes.value_or(0) && bytes <= match_.max_bytes.value_or(kMax) &&
         (!match_.ndim || *match_.ndim == tensor.ndim) && (!match_.dtype || *match_.dtype == tensor.dtype) &&
         (!match_.order || (tensor.order && contains(*match_.order, *tensor.order))) &&
         (!match_.communicator_size || match_.communicator_size == tensor.communicator_size) &&
         matches_name(glob_, tensor.name) && matches_name(communicator_, tensor.communicator_name);
}

bool RuleMatcher::covers(const RuleMatcher& later, Glob::Effort& effort) const {
  return match_.min_bytes.value_or(0) <= later.match_.min_bytes.value_or(0) &&
         match_.max_bytes.value_or(kMax) >= later.match_.max_bytes.value_or(kMax) &&
         covers_value(match_.ndim, later.match_.ndim) && covers_value(match_.dtype, later.match_.dtype) &&
         covers_range(match_.order, later.match_.order) &&
         covers_value(match_.communicator_size, later.match_.communicator_size) &&
         covers_glob(glob_, later.glob_, effort) && covers_glob(communicator_, later.communicator_, effort);
}

bool RuleMatcher::names_calls() const noexcept {
  return match_.communicator_name || match_.communicator_size || match_.min_bytes || match_.max_bytes || match_.dtype;
}

std::string RuleMatcher::describe() const {
  std::string text;
  const auto append = [&](const std::string& condition) { text += (text.empty() ? "" : ", ") + condition; };
  if (glob_) {
    append(glob_->text());
  }
  if (match_.min_bytes) {
    append("at least " + format_bytes(*match_.min_bytes));
  }
  if (match_.max_bytes) {
    append("at most " + format_bytes(*match_.max_bytes));
  }
  if (match_.ndim) {
    append("ndim " + std::to_string(*match_.ndim));
  }
  if (match_.dtype) {
    append(std::string(to_string(*match_.dtype)));
  }
  if (match_.order) {
    const std::string first = std::to_string(match_.order->first);
    append(match_.order->first == match_.order->last ? "call " + first
                                                     : "calls " + first + " to " + std::to_string(match_.order->last));
  }
  if (match_.communicator_size) {
    append("communicator of " + std::to_string(*match_.communicator_size));
  }
  if (communicator_) {
    append("communicator " + communicator_->text());
  }
  return text.empty() ? "every tensor" : text;
}

std::vector<RuleMatcher> compile_rules(const Policy& policy) {
  std::vector<RuleMatcher> matchers;
  for (std::size_t rule = 0; rule < policy.rules.size(); ++rule) {
    try {
      matchers.emplace_back(policy.rules[rule].match);
    } catch (const Error& error) {
      throw Error(error.code(), "policy " + policy.source + ", rule " + std::to_string(rule + 1) + ": " + error.what());
    }
  }
  return matchers;
}

std::string rule_place(const Policy& policy, std::size_t rule) {
  const int line = policy.rules[rule].line;
  return "rule " + std::to_string(rule + 1) + (line > 0 ? " at " + policy.source + ":" + std::to_string(line) : "");
}

}  // namespace gradwire::policy

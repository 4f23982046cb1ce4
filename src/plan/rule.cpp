#include "plan/rule.hpp"

#include <limits>

#include "base/units.hpp"
#include "gradwire/error.hpp"

namespace gradwire::plan {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

// An absent condition covers all, a given one only its equal.
template <typename T>
bool covers_value(const std::optional<T>& earlier, const std::optional<T>& later) {
  return !earlier || earlier == later;
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
  if (match.min_bytes.value_or(0) > match.max_bytes.value_or(kMax)) {
    throw Error(ErrorCode::invalid_argument, "min_bytes (" + format_bytes(*match.min_bytes) + ") is above max_bytes (" +
                                                 format_bytes(*match.max_bytes) +
                                                 "), so no tensor can match; swap them or remove one");
  }
}

bool RuleMatcher::matches(const TensorInfo& tensor) const {
  const std::uint64_t bytes = tensor_bytes(tensor);
  return bytes >= match_.min_bytes.value_or(0) && bytes <= match_.max_bytes.value_or(kMax) &&
         (!match_.ndim || *match_.ndim == tensor.ndim) && (!match_.dtype || *match_.dtype == tensor.dtype) &&
         (!glob_ || (!tensor.name.empty() && glob_->matches(tensor.name)));
}

bool RuleMatcher::covers(const RuleMatcher& later) const {
  // A rule without a glob also matches tensors without a name, so no glob covers it.
  return match_.min_bytes.value_or(0) <= later.match_.min_bytes.value_or(0) &&
         match_.max_bytes.value_or(kMax) >= later.match_.max_bytes.value_or(kMax) &&
         covers_value(match_.ndim, later.match_.ndim) && covers_value(match_.dtype, later.match_.dtype) &&
         (!glob_ || (later.glob_ && glob_->contains(*later.glob_)));
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
  return text.empty() ? "every tensor" : text;
}

}  // namespace gradwire::plan

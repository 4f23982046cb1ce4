// What a session's tensors must be.
#include <algorithm>
#include <string>
#include <utility>

#include "plan/sync.hpp"
#include "session/session_state.hpp"

namespace gradwire {

void Session::State::check_parameters(const std::string& text, const View& gradient,
                                      const std::vector<View>& beside) const {
  for (std::size_t i = 0; i < beside.size(); ++i) {
    const View& one = beside[i];
    const std::string what =
        "add: " + (i == 0 ? std::string("the parameter") : "state " + std::to_string(i)) + " of \"" + text + "\"";
    if (one.count != gradient.count || one.dtype != gradient.dtype) {
      throw Error(ErrorCode::invalid_argument, what + " is " + std::string(to_string(one.dtype)) + " x " +
                                                   std::to_string(one.count) + ", its gradient " +
                                                   std::string(to_string(gradient.dtype)) + " x " +
                                                   std::to_string(gradient.count) + "; they must be alike");
    }
    if (one.data == nullptr && one.count > 0) {
      throw Error(ErrorCode::invalid_argument, what + " has null data with count " + std::to_string(one.count));
    }
    runner->check_memory(one, what);
  }
}

// Before the plan is made of all tensors, since this one should not have come here.
void Session::State::refuse_rows(const TensorInfo& tensor) const {
  const bool any = std::any_of(policy.rules.begin(), policy.rules.end(),
                               [](const Policy::Rule& rule) { return rule.policy.sync.mode == Sync::Mode::rows; });
  if (any && plan::policy_of(policy, tensor).sync.mode == Sync::Mode::rows) {
    throw Error(ErrorCode::unsupported,
                "add: the policy asks for rows of \"" + tensor.name + "\": " + std::string(plan::kRowsNeedATable));
  }
}

TensorId Session::State::add(const std::string& text, const View& gradient, std::vector<View> beside,
                             std::uint32_t ndim) {
  const std::lock_guard lock(mutex);
  throw_if_failed();
  if (plan) {
    throw Error(ErrorCode::invalid_argument, "add: \"" + text +
                                                 "\" comes after the plan was made; add every tensor before the "
                                                 "first ready(), explain() or fingerprint()");
  }
  if (element_bytes(gradient.dtype) == 0) {
    throw Error(ErrorCode::invalid_argument, "add: \"" + text + "\" has unknown dtype " +
                                                 std::to_string(static_cast<int>(gradient.dtype)) +
                                                 "; use f32, f16, bf16 or f64");
  }
  if (gradient.data == nullptr && gradient.count > 0) {
    throw Error(ErrorCode::invalid_argument,
                "add: \"" + text + "\" has null data with count " + std::to_string(gradient.count));
  }
  runner->check_memory(gradient, "add: \"" + text + "\"");
  if (!text.empty() && taken_names.contains(text)) {
    throw Error(ErrorCode::invalid_argument, "add: \"" + text + "\" was added already; names must differ");
  }
  check_parameters(text, gradient, beside);
  TensorInfo info{text, gradient.count, gradient.dtype, ndim};
  info.parameters = static_cast<std::uint32_t>(beside.size());
  refuse_rows(info);
  taken_names.insert(text);
  tensors.push_back(std::move(info));
  parameters.push_back(std::move(beside));
  registered.push_back(gradient);
  accumulated.push_back(0);
  return static_cast<TensorId>(tensors.size() - 1);
}

void Session::State::check_gradient(std::size_t index, const View& gradient) const {
  const TensorInfo& tensor = tensors[index];
  if (gradient.count != tensor.count || gradient.dtype != tensor.dtype ||
      (gradient.data == nullptr && gradient.count > 0)) {
    throw Error(ErrorCode::invalid_argument,
                "ready: \"" + tensor.name + "\" was added as " + std::string(to_string(tensor.dtype)) + " x " +
                    std::to_string(tensor.count) + ", but is now " + std::string(to_string(gradient.dtype)) + " x " +
                    std::to_string(gradient.count) + (gradient.data == nullptr ? " with null data" : ""));
  }
}

}  // namespace gradwire

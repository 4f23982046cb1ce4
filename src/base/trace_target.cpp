#include "base/trace_target.hpp"

#include <charconv>
#include <system_error>

#include "gradwire/error.hpp"

namespace gradwire {
namespace {

[[noreturn]] void bad_target(std::string_view text) {
  throw Error(ErrorCode::invalid_argument,
              "GRADWIRE_TRACE is \"" + std::string(text) +
                  "\"; write a directory, or one and steps, such as /tmp/trace:steps=100-120");
}

}  // namespace

TraceTarget TraceTarget::parse(std::string_view text) {
  constexpr std::string_view kSteps = ":steps=";
  TraceTarget target;
  const std::size_t at = text.rfind(kSteps);
  target.directory = std::string(text.substr(0, at));
  if (target.directory.empty()) {
    bad_target(text);
  }
  if (at == std::string_view::npos) {
    return target;
  }
  const std::string_view steps = text.substr(at + kSteps.size());
  const char* const end = steps.data() + steps.size();
  const auto first = std::from_chars(steps.data(), end, target.first_step);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') {
    bad_target(text);
  }
  const auto last = std::from_chars(first.ptr + 1, end, target.last_step);
  if (last.ec != std::errc() || last.ptr != end || target.last_step < target.first_step) {
    bad_target(text);
  }
  return target;
}

}  // namespace gradwire

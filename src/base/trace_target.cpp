#include "base/trace_target.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "gradwire/error.hpp"

namespace gradwire {
namespace {

[[noreturn]] void bad(std::string_view text) {
  throw Error(ErrorCode::invalid_argument,
              "GRADWIRE_TRACE is \"" + std::string(text) +
                  "\"; write a directory, or one and steps, such as /tmp/trace:steps=100-120");
}

// Whether the text is an option such as "steps=100-120" or "foo=", and not a part of a path such as "x:y" or "a:b=c/d".
bool is_option(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const std::size_t equals = text.find('=');
  return equals != std::string_view::npos && equals > 0 && text.find('/') == std::string_view::npos &&
         std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(equals), is_letter);
}

}  // namespace

TraceTarget TraceTarget::parse(std::string_view text) {
  constexpr std::string_view kSteps = "steps=";
  std::size_t colon = text.find(':');
  while (colon != std::string_view::npos && !is_option(text.substr(colon + 1))) {
    colon = text.find(':', colon + 1);
  }
  TraceTarget target;
  target.directory = std::string(text.substr(0, colon));
  if (target.directory.empty()) {
    bad(text);
  }
  if (colon == std::string_view::npos) {
    return target;
  }
  std::string_view steps = text.substr(colon + 1);
  if (!steps.starts_with(kSteps)) {
    bad(text);
  }
  steps.remove_prefix(kSteps.size());
  const char* const end = steps.data() + steps.size();
  const auto first = std::from_chars(steps.data(), end, target.first_step);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') {
    bad(text);
  }
  const auto last = std::from_chars(first.ptr + 1, end, target.last_step);
  if (last.ec != std::errc() || last.ptr != end || target.last_step < target.first_step) {
    bad(text);
  }
  return target;
}

}  // namespace gradwire

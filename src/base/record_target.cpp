#include "base/record_target.hpp"

#include <charconv>
#include <system_error>

#include "gradwire/error.hpp"

namespace gradwire {

RecordTarget RecordTarget::parse(std::string_view text) {
  constexpr std::string_view kSteps = ":steps=";
  RecordTarget target;
  const std::size_t at = text.rfind(kSteps);
  target.directory = std::string(text.substr(0, at));
  bool right = !target.directory.empty();
  if (at != std::string_view::npos) {
    const std::string_view number = text.substr(at + kSteps.size());
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), target.steps);
    right = right && error == std::errc() && end == number.data() + number.size() && target.steps >= 1 &&
            target.steps <= kMostSteps;
  }
  if (!right) {
    throw Error(ErrorCode::invalid_argument, "GRADWIRE_RECORD_GRADIENTS is \"" + std::string(text) +
                                                 "\"; write a directory, or one and a number of steps up to " +
                                                 std::to_string(kMostSteps) + ", such as /tmp/gradients:steps=5");
  }
  return target;
}

}  // namespace gradwire

#include "session/parts/observation/status_line.hpp"

#include "base/units.hpp"

namespace gradwire::session {

std::string StatusLine::tell(const Progressed& now, Time time) {
  std::string text = "step " + std::to_string(now.step) + ": ";
  // There are fewer steps than before if the counters were reset in between.
  if (told_ && now.steps > before_.steps) {
    const auto steps = static_cast<double>(now.steps - before_.steps);
    const auto each = [&](double seconds) { return format_number(1e3 * seconds / steps, 3) + " ms"; };
    text += each(std::chrono::duration<double>(time - *told_).count()) + " a step since the line before, " +
            each(now.exposed_seconds - before_.exposed_seconds) + " of it exposed; ";
  }
  told_ = time;
  before_ = now;
  return text + std::to_string(now.calls) + " calls, ratio " + format_number(now.ratio, 3);
}

}  // namespace gradwire::session

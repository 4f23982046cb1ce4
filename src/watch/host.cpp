#include "watch/host.hpp"

#include <time.h>  // NOLINT(modernize-deprecated-headers): POSIX's clocks and local time
#include <unistd.h>

#include <array>

namespace gradwire::watch {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::int64_t realtime_nanoseconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace gradwire::watch

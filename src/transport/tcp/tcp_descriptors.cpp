#include "transport/tcp/tcp_descriptors.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>

#include "gradwire/error.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::tcp {
namespace {

constexpr std::size_t kBeside = 24;  // for listeners, visitors, files of metrics

std::optional<std::size_t> descriptors_of_limit() {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? std::optional(static_cast<std::size_t>(limit.rlim_cur)) : std::nullopt;
}

// The number of open descriptors; 0: not known, for example because /proc is missing.
std::size_t open_descriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator all("/proc/self/fd", error);
  return error ? 0 : static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

void check_descriptors(std::size_t others, std::size_t per_process, const std::string& who) {
  const auto limit = descriptors_of_limit();
  const std::size_t open = open_descriptors();
  const std::size_t needed = open + others * per_process + kBeside;
  if (limit && needed > *limit) {
    throw Error(ErrorCode::transport,
                who + "the limit on open files, ulimit -n, is " + std::to_string(*limit) + " here, and " +
                    std::to_string(needed) + " are needed: " + std::to_string(open) + " are open, and each of " +
                    std::to_string(others) + " other processes takes " + std::to_string(per_process) +
                    "; raise it to " + std::to_string(needed) + " or more on each host before the job starts");
  }
}

void check_for_one_descriptor(const std::string& who) {
  const int one = ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // NOLINT(*-vararg)
  const int code = errno;
  if (one >= 0) {
    ::close(one);
  } else if (code == EMFILE || code == ENFILE) {
    const auto limit = descriptors_of_limit();
    throw Error(ErrorCode::transport,
                who + "no connection can be made: " + system_text(code) +
                    (code == EMFILE && limit ? "; the limit on open files, ulimit -n, is " + std::to_string(*limit) +
                                                   ", and all are open; raise it before the job starts"
                                             : ""));
  }
}

}  // namespace gradwire::transport::tcp

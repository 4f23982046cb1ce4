#include "base/unix_socket.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/text.hpp"
#include "gradwire/error.hpp"

namespace gradwire {
namespace {

class OwnedSocket {
 public:
  explicit OwnedSocket(int number) noexcept : number_(number) {}
  ~OwnedSocket() {
    if (number_ >= 0) {
      const int kept = errno;
      ::close(number_);
      errno = kept;
    }
  }
  OwnedSocket(const OwnedSocket&) = delete;
  OwnedSocket& operator=(const OwnedSocket&) = delete;
  [[nodiscard]] int get() const noexcept { return number_; }
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_;
};

[[noreturn]] void refuse_name(const std::filesystem::path& path, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "cannot listen at " + path.string() + ": " + why);
}

OwnedSocket open_folder_of(const std::filesystem::path& path) noexcept {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  return OwnedSocket(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));  // NOLINT(*-vararg)
}

// The address of a name in an open folder. An empty path in it: the name is too long.
sockaddr_un address_in(const OwnedSocket& folder, const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(folder.get()) + "/" + name;
  if (path.size() < sizeof address.sun_path) {
    std::copy(path.begin(), path.end(), address.sun_path);
  }
  return address;
}

int connect_in(const OwnedSocket& folder, const std::string& name) {
  const sockaddr_un address = address_in(folder, name);
  OwnedSocket made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made.get() < 0 || ::connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return -1;
  }
  return made.release();
}

// Throws an Error if the name is taken by a file, or by a socket that somebody uses.
void check_name(const OwnedSocket& folder, const std::string& name, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    return;
  }
  if (!S_ISSOCK(status.st_mode)) {
    refuse_name(path, "a file of that name is there, which is no socket; remove it, or name another directory");
  }
  if (status.st_uid != ::geteuid()) {
    refuse_name(path, "a socket of another user is there; name another directory");
  }
  const OwnedSocket other(connect_in(folder, name));
  if (other.get() >= 0 || errno != ECONNREFUSED) {
    refuse_name(path, "another process listens there; give each job a name of its own (GRADWIRE_JOB)");
  }
}

}  // namespace

int listen_at(const std::filesystem::path& path) {
  const OwnedSocket folder = open_folder_of(path);
  if (folder.get() < 0) {
    refuse_name(path, text::reason_of(errno));
  }
  const std::string name = path.filename().string();
  // The socket listens before it gets its name, so that no other process finds one there where nobody listens.
  const std::string unfinished = "." + std::to_string(::getpid()) + "." + text::short_hash(name) + ".new";
  const sockaddr_un address = address_in(folder, unfinished);
  if (address_in(folder, name).sun_path[0] == '\0') {
    refuse_name(path, "the name is too long for a socket; give the job a shorter one (GRADWIRE_JOB)");
  }
  check_name(folder, name, path);
  OwnedSocket made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  constexpr int kWaiting = 16;
  static_cast<void>(::unlinkat(folder.get(), unfinished.c_str(), 0));  // left by a killed process with this number
  // The mode of the descriptor is that of the name from the moment that bind() makes it.
  if (made.get() < 0 || ::fchmod(made.get(), S_IRUSR | S_IWUSR) != 0 ||
      ::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    refuse_name(path, text::reason_of(errno));
  }
  if (::listen(made.get(), kWaiting) != 0 ||
      ::renameat(folder.get(), unfinished.c_str(), folder.get(), name.c_str()) != 0) {
    const int number = errno;
    static_cast<void>(::unlinkat(folder.get(), unfinished.c_str(), 0));
    refuse_name(path, text::reason_of(number));
  }
  return made.release();
}

int connect_to(const std::filesystem::path& path) noexcept {
  try {
    const OwnedSocket folder = open_folder_of(path);
    return folder.get() < 0 ? -1 : connect_in(folder, path.filename().string());
  } catch (...) {
    errno = ENOMEM;
    return -1;
  }
}

bool wait_before(int descriptor, short events, Deadline deadline) noexcept {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd waited{descriptor, events, 0};
    const int ready = left <= 0 ? 0 : ::poll(&waited, 1, static_cast<int>(left));
    if (ready >= 0 || errno != EINTR) {
      return ready > 0;
    }
  }
}

bool send_before(int descriptor, std::string_view text, Deadline deadline) noexcept {
  while (!text.empty()) {
    const ssize_t sent = ::send(descriptor, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      text.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_before(descriptor, POLLOUT, deadline)) {
        return false;
      }
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool receive_before(int descriptor, std::string& text, std::size_t most, Deadline deadline) {
  std::array<char, 8192> part{};
  while (text.size() < most && wait_before(descriptor, POLLIN, deadline)) {
    const ssize_t got = ::recv(descriptor, part.data(), std::min(part.size(), most - text.size()), MSG_DONTWAIT);
    if (got > 0) {
      text.append(part.data(), static_cast<std::size_t>(got));
      return true;
    }
    if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      return false;
    }
  }
  return false;
}

}  // namespace gradwire

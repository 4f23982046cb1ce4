#include "memory/scratch_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include "base/closed_in_children.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "gradwire/error.hpp"
#include "memory/file_requests.hpp"

namespace gradwire::memory {
namespace {

// NOLINTBEGIN(cppcoreguidelines-pro-type-vararg): open() and mkostemp() have variable arguments

// Returns a descriptor of a new file without a name, or a negative errno.
int open_unnamed(const std::string& folder, int flags) {
  const int unnamed = ::open(folder.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
  if (unnamed >= 0) {
    return unnamed;
  }
  if (errno != EOPNOTSUPP && errno != EISDIR) {
    return -errno;
  }
  std::string name = folder + "/gradwire-XXXXXX";  // a file system without O_TMPFILE
  const int named = ::mkostemp(name.data(), O_CLOEXEC | flags);
  const int reason = errno;
  if (named >= 0) {
    ::unlink(name.c_str());
  }
  return named >= 0 ? named : -reason;
}

// NOLINTEND(cppcoreguidelines-pro-type-vararg)

// Writes one unit, which tells whether the file system takes requests past the page cache. Returns 0 or an errno.
int try_write(int descriptor) {
  alignas(kFileUnit) static const std::array<std::byte, kFileUnit> zeros{};
  const ssize_t written = ::pwrite(descriptor, zeros.data(), zeros.size(), 0);
  if (written < 0) {
    return errno;
  }
  return written == static_cast<ssize_t>(zeros.size()) ? 0 : ENOSPC;
}

bool lies_in_memory(int descriptor) {
  constexpr std::uint32_t kTmpfs = 0x01021994;
  struct statfs system {};
  return ::fstatfs(descriptor, &system) == 0 && static_cast<std::uint32_t>(system.f_type) == kTmpfs;
}

const char* remedy_of(int reason) {
  switch (reason) {
    case ENOSPC:
    case EDQUOT: return "make room there, name a folder with more of it, or let more stay in memory";
    case EFBIG: return "raise the limit of file sizes (ulimit -f), or let more stay in memory";
    case EACCES:
    case EPERM:
    case EROFS: return "name a folder in which this user may write";
    case ENOENT:
    case ENOTDIR: return "name a folder that exists";
    default: return "look for errors of the disk in the system's log, and name a folder on another disk";
  }
}

}  // namespace

// The file must not outlive this process in its children, so these close it.
ScratchFile::ScratchFile(std::filesystem::path folder, std::string holds)
    : folder_(std::move(folder)), holds_(std::move(holds)) {
  check_size(kFileUnit);
  int refusal = EINVAL;
  for (const int flag : {O_DIRECT, 0}) {
    const int opened = open_unnamed(folder_.string(), flag);
    refusal = opened < 0 ? -opened : try_write(opened);
    if (refusal == 0) {
      descriptor_ = opened;
      bypasses_cache_ = flag != 0;
      break;
    }
    if (opened >= 0) {
      ::close(opened);
    }
    if (refusal != EINVAL && refusal != EOPNOTSUPP) {
      break;
    }
  }
  if (descriptor_ < 0) {
    throw Error(ErrorCode::invalid_argument, message("no scratch file for " + holds_ + " can be made there", refusal));
  }
  static_cast<void>(close_in_children(descriptor_));
  if (lies_in_memory(descriptor_)) {
    bypasses_cache_ = false;
    log(LogLevel::warning, folder_.string() + " lies in memory (tmpfs): a file of " + holds_ +
                               " there saves none; name a folder on a disk");
  } else if (!bypasses_cache_) {
    log(LogLevel::warning, folder_.string() +
                               ": its file system refuses O_DIRECT, so the page cache takes memory for " +
                               "the file of " + holds_ + ", beside what the process holds");
  }
}

ScratchFile::~ScratchFile() {
  if (!home_.is_elsewhere()) {
    forget_in_children(descriptor_);
    ::close(descriptor_);
  }
}

void ScratchFile::check_home() const {
  if (home_.is_elsewhere()) {
    throw Error(ErrorCode::unsupported, "the scratch file of " + holds_ + " in " + folder_.string() +
                                            " belongs to the parent of this process; make a session in the child");
  }
}

void ScratchFile::check_size(std::uint64_t bytes) const {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur) {
    throw Error(ErrorCode::invalid_argument,
                message("the scratch file of " + holds_ + " would have " + format_bytes(bytes) +
                            ", and this process may write files of " + format_bytes(limit.rlim_cur),
                        EFBIG));
  }
}

void ScratchFile::reserve(std::uint64_t bytes) const {
  check_size(bytes);
  int result = 0;
  do {
    result = ::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EPERM) {
    const int reason = errno;
    throw Error(ErrorCode::invalid_argument,
                message("there is no room for " + format_bytes(bytes) + " of " + holds_, reason));
  }
}

std::string ScratchFile::message(const std::string& what, int reason) const {
  return folder_.string() + ": " + what + (reason != 0 ? " (" + text::reason_of(reason) + ")" : "") + "; " +
         remedy_of(reason);
}

}  // namespace gradwire::memory

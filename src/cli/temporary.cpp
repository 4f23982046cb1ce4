#include "cli/temporary.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/text.hpp"
#include "base/written_file.hpp"
#include "cli/process.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "gradwire-";
constexpr std::size_t kRandom = 6;  // characters of mkdtemp
constexpr const char* kLock = ".lock";

// NOLINTBEGIN(cppcoreguidelines-pro-type-vararg): open() has variable arguments
int open_lock(const fs::path& file) { return ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW); }
// NOLINTEND(cppcoreguidelines-pro-type-vararg)

bool is_own_folder(const fs::path& folder) {
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

// Whether no process holds the folder's lock, which the system releases when the process ends in any way.
bool is_left_behind(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kBegin) || name.size() != kBegin.size() + kRandom || !is_own_folder(folder)) {
    return false;
  }
  const int lock = open_lock(folder / kLock);
  const bool free = lock >= 0 && ::flock(lock, LOCK_EX | LOCK_NB) == 0;
  if (lock >= 0) {
    ::close(lock);
  }
  return free;
}

void clear_away(const fs::path& parent) {
  std::error_code problem;
  std::vector<fs::path> left;
  for (fs::directory_iterator entry(parent, problem), end; !problem && entry != end; entry.increment(problem)) {
    if (is_left_behind(entry->path())) {
      left.push_back(entry->path());
    }
  }
  for (const fs::path& folder : left) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
}

}  // namespace

fs::path temporary_parent() {
  const std::string given = variable("TMPDIR");
  return given.empty() ? fs::path("/tmp") : fs::absolute(given);
}

TemporaryFolder::TemporaryFolder() {
  const fs::path parent = temporary_parent();
  clear_away(parent);
  std::string name = (parent / (std::string(kBegin) + std::string(kRandom, 'X'))).string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "no temporary folder can be made in " + parent.string() + " (" + text::reason_of(errno) +
                    "); set TMPDIR to a folder that can be written, or name a report by --report");
  }
  path_ = name;
  // The lock gets its name only once it is locked, so that no other process finds it free.
  const fs::path made = path_ / ".lock-new";
  lock_ = open_to_write(made, O_RDWR | O_EXCL, Readers::owner);
  if (lock_ >= 0 && ::flock(lock_, LOCK_EX | LOCK_NB) == 0) {
    static_cast<void>(::rename(made.c_str(), (path_ / kLock).c_str()));
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) {
    ::close(lock_);
  }
}

}  // namespace gradwire::cli

#include "base/durable_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <optional>
#include <random>
#include <streambuf>
#include <string_view>
#include <system_error>

#include "base/descriptor.hpp"
#include "base/log.hpp"
#include "base/own_files.hpp"
#include "base/text.hpp"
#include "base/written_file.hpp"
#include "gradwire/error.hpp"

namespace gradwire {
namespace {

constexpr std::string_view kUnfinished = ".tmp";
constexpr std::string_view kPrevious = ".previous";
constexpr std::size_t kRandomDigits = 16;
constexpr std::chrono::minutes kUnfinishedReport{1};  // an older unfinished report is not of a living process

[[noreturn]] void fail_io(const std::filesystem::path& path, const std::string& what, int reason) {
  throw Error(ErrorCode::invalid_argument, path.string() + ": " + what + " (" + text::reason_of(reason) + ")");
}

int open_path(const std::filesystem::path& path, int flags) {
  return ::open(path.c_str(), flags | O_CLOEXEC);  // NOLINT(cppcoreguidelines-pro-type-vararg): open() has them
}

// Whether the error means that the filesystem, or a filter of system calls, has no sync. They report that in several
// ways, none of which a failed disk uses.
bool has_no_sync(int reason, bool directory) noexcept {
  switch (reason) {
    case EINVAL:
    case ENOSYS:
    case ENOTSUP:
    case EPERM: return true;
    case EBADF:
    case EACCES: return directory;  // a folder that can be written but not read cannot be opened
    default: return false;
  }
}

void warn_without_sync(const std::filesystem::path& path, int reason) {
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) {
    log(LogLevel::warning, path.string() + " cannot be brought to the disk here (" + text::reason_of(reason) +
                               "): what is saved there is whole, but may be gone after a failure of the whole machine. "
                               "Told once");
  }
}

// Brings the file to the disk. Without this a rename could reach the disk before the bytes do, and a crash of the node
// could leave an empty file. 0: done, or not possible here; otherwise the errno of the failure.
int sync(const Descriptor& descriptor, const std::filesystem::path& path, bool directory) {
  if (::fsync(descriptor.get()) == 0) {
    return 0;
  }
  const int reason = errno;
  if (!has_no_sync(reason, directory)) {
    return reason;
  }
  if (reason != EINVAL) {  // nothing to sync
    warn_without_sync(path, reason);
  }
  return 0;
}

// Writes to a descriptor, and keeps the reason why writing failed.
class DescriptorBuffer : public std::streambuf {
 public:
  explicit DescriptorBuffer(int descriptor) : descriptor_(descriptor) {
    setp(bytes_.data(), bytes_.data() + bytes_.size());
  }
  [[nodiscard]] int reason() const noexcept { return reason_; }

 protected:
  int sync() override {
    if (!write_all(descriptor_, std::string_view(pbase(), static_cast<std::size_t>(pptr() - pbase())))) {
      reason_ = errno;
      return -1;
    }
    setp(bytes_.data(), bytes_.data() + bytes_.size());
    return 0;
  }
  int_type overflow(int_type c) override {
    if (sync() != 0) {
      return traits_type::eof();
    }
    if (!traits_type::eq_int_type(c, traits_type::eof())) {
      sputc(traits_type::to_char_type(c));
    }
    return traits_type::not_eof(c);
  }

 private:
  int descriptor_;
  int reason_ = 0;
  std::array<char, 1 << 16> bytes_{};
};

std::string random_digits() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::random_device random;
  std::string digits;
  while (digits.size() < kRandomDigits) {
    digits += kDigits[random() % kDigits.size()];
  }
  return digits;
}

// Removes NAME.<16 digits>.tmp of earlier processes, which were killed: one process at a time writes a state of this
// name.
void clear_away(const std::filesystem::path& directory, const std::string& name, FileKind kind) {
  std::error_code error;
  const auto old = std::filesystem::file_time_type::clock::now() - kUnfinishedReport;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string found = entry->path().filename().string();
    std::error_code ignored;
    if (found.size() == name.size() + 1 + kRandomDigits + kUnfinished.size() && found.starts_with(name + ".") &&
        found.ends_with(kUnfinished) && (kind == FileKind::state || entry->last_write_time(ignored) < old)) {
      ::unlink(entry->path().c_str());
    }
  }
}

// A file that its owner closed to others stays closed when it is replaced.
Readers readers_of(const std::filesystem::path& file, Readers most) {
  struct stat before {};
  if (::lstat(file.c_str(), &before) != 0 || !S_ISREG(before.st_mode) || before.st_uid != ::geteuid()) {
    return most;
  }
  const mode_t mode = before.st_mode;
  return std::min(most, (mode & S_IROTH) != 0   ? Readers::everybody
                        : (mode & S_IRGRP) != 0 ? Readers::group
                                                : Readers::owner);
}

// Fills the file behind the descriptor. Its error has the reason of a failure.
void fill(int descriptor, const std::filesystem::path& file, const std::function<void(std::ostream&)>& write) {
  DescriptorBuffer buffer(descriptor);
  std::ostream stream(&buffer);
  std::exception_ptr thrown;
  try {
    write(stream);
  } catch (...) {
    thrown = std::current_exception();
  }
  if (!stream.flush() && buffer.reason() != 0) {
    fail_io(file, "only a part could be written", buffer.reason());
  }
  if (thrown) {
    std::rethrow_exception(thrown);
  }
}

// The descriptor behind a name like "/dev/fd/63", which is a link to an open file of this process.
std::optional<int> open_already(const std::filesystem::path& file) {
  const std::string name = file.string();
  if (name == "/dev/stdout" || name == "/dev/stderr") {
    return name == "/dev/stdout" ? STDOUT_FILENO : STDERR_FILENO;
  }
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (name.starts_with(folder)) {
      int number = 0;
      const char* const end = name.data() + name.size();
      const auto [rest, failure] = std::from_chars(name.data() + folder.size(), end, number);
      return failure == std::errc() && rest == end ? std::optional(number) : std::nullopt;
    }
  }
  return std::nullopt;
}

// Opens a pipe or a device; it does not wait for the reader of a pipe.
std::optional<Descriptor> open_stream(const std::filesystem::path& file) {
  if (const auto number = open_already(file)) {
    return std::optional<Descriptor>(std::in_place, ::fcntl(*number, F_DUPFD_CLOEXEC, 0));  // NOLINT(*-vararg)
  }
  struct stat status {};
  if (::lstat(file.c_str(), &status) != 0 || !(S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode))) {
    return std::nullopt;
  }
  return std::optional<Descriptor>(std::in_place, open_path(file, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
}

}  // namespace

std::filesystem::path previous_of(const std::filesystem::path& file) { return file.string() + std::string(kPrevious); }

std::string current_of(const std::string& name) {
  return name.substr(0, name.size() - (name.ends_with(kPrevious) ? kPrevious.size() : 0));
}

void sync_directory(const std::filesystem::path& directory) {
  const Descriptor descriptor(open_path(directory, O_RDONLY | O_DIRECTORY));
  int reason = descriptor.is_open() ? 0 : errno;
  if (has_no_sync(reason, true)) {
    warn_without_sync(directory, reason);
    return;
  }
  reason = reason == 0 ? sync(descriptor, directory, true) : reason;
  if (reason != 0) {
    fail_io(directory, "cannot be brought to the disk", reason);
  }
}

DurableFile::DurableFile(const std::filesystem::path& directory, const std::string& name,
                         const std::function<void(std::ostream&)>& write, FileKind kind, Readers readers)
    : file_(directory / name), kind_(kind) {
  std::error_code error;
  make_own_folders(directory, error);
  clear_away(directory, name, kind);
  const std::filesystem::path unfinished = file_.string() + "." + random_digits() + std::string(kUnfinished);
  const Descriptor descriptor(open_to_write(unfinished, O_WRONLY | O_EXCL, readers_of(file_, readers)));
  if (!descriptor.is_open()) {
    fail_io(file_, "cannot be written", error ? error.value() : errno);  // a folder's error says more
  }
  try {
    fill(descriptor.get(), file_, write);
    if (const int reason = kind == FileKind::state ? sync(descriptor, file_, false) : 0; reason != 0) {
      fail_io(file_, "cannot be brought to the disk", reason);
    }
  } catch (...) {
    ::unlink(unfinished.c_str());
    throw;
  }
  unfinished_ = unfinished;
}

DurableFile::~DurableFile() {
  if (!unfinished_.empty()) {
    ::unlink(unfinished_.c_str());
  }
}

void DurableFile::commit(Old old) {
  if (old == Old::kept && ::rename(file_.c_str(), previous_of(file_).c_str()) != 0 && errno != ENOENT) {
    fail_io(file_, "cannot be renamed to " + previous_of(file_).filename().string(), errno);
  }
  if (::rename(unfinished_.c_str(), file_.c_str()) != 0) {
    fail_io(file_, "cannot be renamed from " + unfinished_.filename().string(), errno);
  }
  unfinished_.clear();
  if (kind_ == FileKind::state) {
    sync_directory(file_.has_parent_path() ? file_.parent_path() : ".");
  }
}

void write_report_file(const std::filesystem::path& file, const std::function<void(std::ostream&)>& write,
                       Readers readers) {
  if (const auto stream = open_stream(file)) {
    if (!stream->is_open()) {
      fail_io(file, "cannot be written", errno);
    }
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): fcntl() is variadic; from here on writes wait for the reader
    static_cast<void>(::fcntl(stream->get(), F_SETFL, ::fcntl(stream->get(), F_GETFL) & ~O_NONBLOCK));
    fill(stream->get(), file, write);
    return;
  }
  std::error_code error;
  if (std::filesystem::is_directory(std::filesystem::symlink_status(file, error))) {
    fail_io(file, "cannot be written", EISDIR);  // fails before the work is done
  }
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(folder, error)) {  // folders are made only where a caller asks for it
    fail_io(file, "cannot be written", error ? error.value() : std::filesystem::exists(folder) ? ENOTDIR : ENOENT);
  }
  DurableFile(folder, file.filename().string(), write, FileKind::report, readers).commit();
}

}  // namespace gradwire

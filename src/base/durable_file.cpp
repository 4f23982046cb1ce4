#include "base/durable_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <random>
#include <streambuf>
#include <string_view>
#include <system_error>

#include "base/own_files.hpp"
#include "gradwire/error.hpp"

namespace gradwire {
namespace {

constexpr std::string_view kUnfinished = ".tmp";
constexpr std::string_view kPrevious = ".previous";
constexpr std::size_t kRandomDigits = 16;

[[noreturn]] void fail_io(const std::filesystem::path& path, const std::string& what, int reason) {
  throw Error(ErrorCode::invalid_argument,
              path.string() + ": " + what + " (" + std::generic_category().message(reason) + ")");
}

// NOLINTBEGIN(cppcoreguidelines-pro-type-vararg): open() is as it is
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags) : number_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }
  /// Without this a rename could reach the disk before the bytes do, and a crash of the node leave an empty file.
  [[nodiscard]] bool sync() const noexcept { return ::fsync(number_) == 0 || errno == EINVAL; }  // has nothing to sync

 private:
  int number_;
};
// NOLINTEND(cppcoreguidelines-pro-type-vararg)

// What is written to a descriptor, and why writing failed.
class DescriptorBuffer : public std::streambuf {
 public:
  explicit DescriptorBuffer(int descriptor) : descriptor_(descriptor) {
    setp(bytes_.data(), bytes_.data() + bytes_.size());
  }
  [[nodiscard]] int reason() const noexcept { return reason_; }

 protected:
  int sync() override {
    for (const char* from = pbase(); from < pptr();) {
      const ssize_t written = ::write(descriptor_, from, static_cast<std::size_t>(pptr() - from));
      if (written < 0 && errno != EINTR) {
        reason_ = errno;
        return -1;
      }
      from += written > 0 ? written : 0;
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

// NAME.<16 digits>.tmp of earlier processes, which were killed: one process at a time writes a file of this name.
void clear_away(const std::filesystem::path& directory, const std::string& name) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string found = entry->path().filename().string();
    if (found.size() == name.size() + 1 + kRandomDigits + kUnfinished.size() && found.starts_with(name + ".") &&
        found.ends_with(kUnfinished)) {
      ::unlink(entry->path().c_str());
    }
  }
}

}  // namespace

std::filesystem::path previous_of(const std::filesystem::path& file) { return file.string() + std::string(kPrevious); }

std::string current_of(const std::string& name) {
  return name.substr(0, name.size() - (name.ends_with(kPrevious) ? kPrevious.size() : 0));
}

void sync_directory(const std::filesystem::path& directory) {
  const Descriptor descriptor(directory, O_RDONLY | O_DIRECTORY);
  if (!descriptor.is_open() || !descriptor.sync()) {
    fail_io(directory, "cannot be brought to the disk", errno);
  }
}

DurableFile::DurableFile(const std::filesystem::path& directory, const std::string& name,
                         const std::function<void(std::ostream&)>& write)
    : file_(directory / name) {
  std::error_code error;
  make_own_folders(directory, error);
  clear_away(directory, name);
  const std::filesystem::path unfinished = file_.string() + "." + random_digits() + std::string(kUnfinished);
  const Descriptor descriptor(unfinished, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  if (!descriptor.is_open()) {
    fail_io(file_, "cannot be written", errno);
  }
  try {
    DescriptorBuffer buffer(descriptor.number());
    std::ostream stream(&buffer);
    std::exception_ptr thrown;
    try {
      write(stream);
    } catch (...) {
      thrown = std::current_exception();
    }
    if (!stream.flush() && buffer.reason() != 0) {  // why is better than that it failed
      fail_io(file_, "only a part could be written", buffer.reason());
    }
    if (thrown) {
      std::rethrow_exception(thrown);
    }
    if (!descriptor.sync()) {
      fail_io(file_, "cannot be brought to the disk", errno);
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
  sync_directory(file_.has_parent_path() ? file_.parent_path() : ".");
}

}  // namespace gradwire

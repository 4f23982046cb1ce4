#include "transport/tcp/tcp_join_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/durable_file.hpp"
#include "base/mutex.hpp"
#include "base/written_file.hpp"
#include "gradwire/error.hpp"
#include "gradwire/version.hpp"

namespace gradwire::transport::tcp {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "gradwire-join";
constexpr std::size_t kMostBytes = 64U << 20U;
constexpr std::chrono::seconds kLookAtOne{5};  // for each process of an old file
constexpr std::size_t kMostLookedAt = 64;      // most processes asked at once

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::invalid_argument, what); }

std::string line_of(const Acquaintance& process) {
  return std::string(kMark) + " " + std::string(kVersion) + " " + std::to_string(process.id) + " " +
         process.card.to_text() + "\n";
}

struct Line {
  Acquaintance process;
  std::string version;
};

std::optional<Line> read_line(std::string_view text) {
  Line line;
  if (next_word(text) != kMark) {
    return std::nullopt;
  }
  line.version = next_word(text);
  const bool id = read_number(next_word(text), line.process.id) && line.process.id < kFirstToken;
  auto card = Card::from_text(text);
  if (!id || !card || card->places.empty()) {
    return std::nullopt;
  }
  line.process.card = std::move(*card);
  return line;
}

// Reads the valid lines of a join file. Others are skipped, since a process may have been killed while it wrote one; a
// line that is being written has no end. Error where no line is valid.
std::vector<Line> read_lines(const fs::path& file, const std::string& text) {
  std::istringstream stream(text);
  std::vector<Line> lines;
  for (std::string line; std::getline(stream, line) && !stream.eof();) {
    if (auto read = read_line(line)) {
      lines.push_back(std::move(*read));
    }
  }
  if (lines.empty() && !text.empty()) {
    refuse(file.string() + " is there, and is no join file of gradwire; name another one");
  }
  return lines;
}

// Returns the opened file if it is only this user's: anyone who can write it, or replace it, decides where processes
// connect to, and what they are told.
Socket checked_own(const fs::path& file, Socket opened) {
  struct stat status {};
  if (!opened.valid() || fstat(opened.fd(), &status) != 0) {
    const std::string why = errno == ELOOP    ? "it is a link; name the file itself"
                            : errno == ENOENT ? "there is none; its job has ended, or has not begun"
                                              : system_text(errno);
    refuse("join file " + file.string() + " cannot be opened: " + why);
  }
  if (!S_ISREG(status.st_mode)) {
    refuse("join file " + file.string() + " is no regular file; name another one");
  }
  if (status.st_uid != geteuid()) {
    refuse("join file " + file.string() + " belongs to another user; only who has started a job may join it");
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    refuse("join file " + file.string() + " can be written by other users, who could lead this process elsewhere; " +
           "chmod 600 it if nobody has");
  }
  std::array<char, kMark.size()> begin{};
  const bool holds_secrets = pread(opened.fd(), begin.data(), begin.size(), 0) == std::ssize(begin) &&
                             std::string_view(begin.data(), begin.size()) == kMark;  // the caller reports others
  if (holds_secrets && (status.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    refuse("join file " + file.string() + " can be read by other users, who could join with its secrets; start the " +
           "job anew with another join file, or chmod 600 it if nobody has");
  }
  return opened;
}

Socket open_own(const fs::path& file, int flags) {
  return checked_own(file,
                     Socket(open(file.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)));  // NOLINT(*-vararg)
}

std::string text_of(const fs::path& file, const Socket& opened) {
  std::string text;
  std::vector<char> part(65536);
  for (ssize_t count = 1; count > 0 && text.size() <= kMostBytes;) {
    count = pread(opened.fd(), part.data(), part.size(), static_cast<off_t>(text.size()));
    if (count < 0) {
      refuse("join file " + file.string() + " cannot be read: " + system_text(errno));
    }
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  if (text.size() > kMostBytes) {
    refuse(file.string() + " is too long for a join file; name another one");
  }
  return text;
}

// Whether the file still has that name: another job replaces it.
bool is_named(const Socket& opened, const fs::path& file) {
  struct stat held {};
  struct stat named {};
  return fstat(opened.fd(), &held) == 0 && lstat(file.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

fs::path folder_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

void check_folder_of(const fs::path& file) {
  if (!fs::is_directory(folder_of(file))) {
    refuse("the join file " + file.string() + " cannot be written: " + folder_of(file).string() +
           " is no folder; make it, or name another file");
  }
}

// A process that accepts connections but does not answer may be stopped, or have another key. All processes are asked
// at the same time, since others may answer at once.
void refuse_where_one_lives(const fs::path& file, const std::vector<Line>& lines, const ConnectionKeys* keys) {
  Mutex mutex;
  std::string found;  // under mutex, until the threads have ended
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> over = false;
  const auto look = [&] {
    for (std::size_t i = next++; i < lines.size() && !over; i = next++) {
      const Acquaintance& process = lines[i].process;
      const Greeting mine{.rank = kFirstToken, .purpose = 1};
      std::string why;
      if (process.card.may_be_running(Clock::now() + kLookAtOne, mine, process.id, why, keys)) {
        const MutexLock lock(mutex);
        over = true;
        found =
            "its process " + std::to_string(process.id) +
            (why.empty() ? " answers" : " takes connections, as one that is stopped or has another key (" + why + ")");
      }
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < std::min(lines.size(), kMostLookedAt); ++i) {
    threads.emplace_back(look);
  }
  threads.clear();
  if (over) {
    refuse(file.string() + " belongs to a job that runs: " + found +
           "; name another join file, or remove it if that job has ended");
  }
}

}  // namespace

void say(LogLevel level, const std::string& text) {
  if (has_log_sink()) {
    log(level, text);
  } else {
    std::fprintf(stderr, "gradwire: %s\n", text.c_str());
  }
}

void check_join_file_is_free(const fs::path& file, const ConnectionKeys* keys) {
  check_folder_of(file);
  std::error_code error;
  if (fs::symlink_status(file, error).type() != fs::file_type::not_found) {
    refuse_where_one_lives(file, read_lines(file, text_of(file, open_own(file, O_RDONLY))), keys);
  }
}

JoinFileClaim::JoinFileClaim(fs::path file, const ConnectionKeys* keys) : file_(std::move(file)) {
  check_folder_of(file_);
  held_ = checked_own(file_, Socket(open_to_write(file_, O_RDWR | O_NONBLOCK, Readers::owner)));
  const bool other = flock(held_.fd(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (other || !file_exists()) {
    held_ = Socket();
    refuse("the join file " + file_.string() +
           " is that of another job, which starts at this moment; name another one");
  }
  refuse_where_one_lives(file_, read_lines(file_, text_of(file_, held_)), keys);
}

JoinFileClaim::~JoinFileClaim() {
  struct stat held {};
  if (held_.valid() && fstat(held_.fd(), &held) == 0 && held.st_size == 0 && file_exists()) {
    unlink(file_.c_str());
  }
}

bool JoinFileClaim::file_exists() const { return is_named(held_, file_); }

void write_join_file(const fs::path& file, const std::vector<Acquaintance>& processes) {
  DurableFile written(folder_of(file), file.filename().string(), [&](std::ostream& out) {
    for (const Acquaintance& process : processes) {
      out << line_of(process);
    }
  });
  written.commit();
}

void append_to_join_file(const fs::path& file, const Acquaintance& process) {
  std::string why;
  try {
    const Socket opened = open_own(file, O_RDWR | O_APPEND);
    char last = '\n';
    if (const off_t size = lseek(opened.fd(), 0, SEEK_END); size > 0) {
      static_cast<void>(!pread(opened.fd(), &last, 1, size - 1));
    }
    const std::string line = (last == '\n' ? "" : "\n") + line_of(process);  // ends the line of a killed process first
    if (write(opened.fd(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      why = system_text(errno);
    }
  } catch (const Error& error) {
    why = error.what();
  }
  if (!why.empty()) {
    say(LogLevel::warning, "this process cannot add itself to the join file " + file.string() + " (" + why +
                               "): once those that stand there have ended nobody can join");
  }
}

void remove_join_file_if_last(const fs::path& file, const Acquaintance& own, const ConnectionKeys* keys) noexcept {
  try {
    constexpr std::chrono::seconds kAtMost{3};
    const Clock::time_point deadline = Clock::now() + kAtMost;
    const Socket opened = open_own(file, O_RDONLY);
    bool has_own = false;
    for (const Line& line : read_lines(file, text_of(file, opened))) {
      std::string why;
      const Greeting mine{.rank = kFirstToken, .purpose = 1};
      if (line.process.id == own.id && line.process.card.nonce == own.card.nonce) {
        has_own = true;
      } else if (Clock::now() >= deadline ||
                 line.process.card.may_be_running(deadline, mine, line.process.id, why, keys)) {
        return;
      }
    }
    if (has_own && is_named(opened, file)) {
      unlink(file.c_str());
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): somebody has removed it, or it cannot be read
  }
}

std::vector<Acquaintance> read_join_file(const fs::path& file) {
  const std::string text = text_of(file, open_own(file, O_RDONLY));
  if (text.empty()) {
    refuse("join file " + file.string() + " is empty: its job is about to start, or could not; join it once it runs");
  }
  std::vector<Acquaintance> processes;
  std::string other;
  for (Line& line : read_lines(file, text)) {
    if (line.version == kVersion) {
      processes.push_back(std::move(line.process));
    } else {
      other = line.version;
    }
  }
  if (processes.empty()) {
    throw Error(ErrorCode::mismatch, file.string() + " is of a job with gradwire " + other.substr(0, 20) +
                                         ", and this process has " + std::string(kVersion) +
                                         "; all processes of a job need the same version");
  }
  return processes;
}

}  // namespace gradwire::transport::tcp

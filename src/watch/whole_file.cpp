#include "watch/whole_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>

#include "base/current_error.hpp"
#include "base/own_files.hpp"
#include "base/text.hpp"
#include "gradwire/error.hpp"

namespace gradwire::watch {
namespace {

void clear_leftovers(const std::filesystem::path& directory, const std::string& name) {
  std::error_code ignored;
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::minutes(1);
  for (std::filesystem::directory_iterator entry(directory, ignored), end; entry != end; entry.increment(ignored)) {
    const std::string other = entry->path().filename().string();
    if (other.starts_with("." + name + ".") && other.ends_with(kUnfinished) && entry->last_write_time(ignored) < old) {
      std::filesystem::remove(entry->path(), ignored);
    }
  }
}

}  // namespace

void fail_at(const std::filesystem::path& file, const std::string& what, int number) {
  throw Error(ErrorCode::invalid_argument, "cannot " + what + " " + file.string() + ": " + text::reason_of(number));
}

void write_whole(const std::filesystem::path& directory, const std::string& name, const std::string& text,
                 Readers readers) {
  const std::filesystem::path file = directory / name;
  const std::filesystem::path unfinished =
      directory / ("." + name + "." + std::to_string(::getpid()) + std::string(kUnfinished));
  ::unlink(unfinished.c_str());  // it is left from an earlier process with this number
  Descriptor descriptor(open_to_write(unfinished, O_WRONLY | O_EXCL, readers));
  if (descriptor.get() < 0) {
    fail_at(unfinished, "make", errno);
  }
  int problem = write_all(descriptor.get(), text) ? 0 : errno;
  if (!descriptor.close() && problem == 0) {
    problem = errno;
  }
  if (problem == 0 && ::rename(unfinished.c_str(), file.c_str()) != 0) {
    problem = errno;
  }
  if (problem != 0) {
    ::unlink(unfinished.c_str());
    fail_at(file, "write", problem);
  }
}

void RankFiles::attempt(const std::function<void()>& write) {
  try {
    std::error_code error;
    make_own_folders(directory_, error);
    if (error) {
      throw Error(ErrorCode::invalid_argument,
                  "cannot make the directory " + directory_.string() + ": " + error.message());
    }
    write();
  } catch (...) {
    if (!std::exchange(warned_, true)) {
      warn_(kind_ + ": " + std::string(current_error().what()) + "; the job goes on, and so do tries (" + variable_ +
            "). Told once");
    }
  }
}

void RankFiles::write(const std::string& name, const std::string& text, Readers readers) {
  if (cleared_.insert(name).second) {
    clear_leftovers(directory_, name);
  }
  write_whole(directory_, name, text, readers);
}

}  // namespace gradwire::watch

#include "export/textfile.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/current_error.hpp"
#include "gradwire/error.hpp"

namespace gradwire::metrics {
namespace {

constexpr std::string_view kUnfinished = ".new";

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what, int number) {
  throw Error(ErrorCode::invalid_argument,
              "cannot " + what + " " + file.string() + ": " + std::generic_category().message(number));
}

class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return descriptor_; }
  [[nodiscard]] bool close() noexcept { return ::close(std::exchange(descriptor_, -1)) == 0; }

 private:
  int descriptor_;
};

bool write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      return false;
    }
    text.remove_prefix(written > 0 ? static_cast<std::size_t>(written) : 0);
  }
  return true;
}

}  // namespace

void write_whole(const std::filesystem::path& directory, const std::string& name, const std::string& text) {
  const std::filesystem::path file = directory / name;
  const std::filesystem::path unfinished =
      directory / ("." + name + "." + std::to_string(::getpid()) + std::string(kUnfinished));
  ::unlink(unfinished.c_str());  // of an earlier process with this number
  Descriptor descriptor(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (descriptor.get() < 0) {
    fail(unfinished, "make", errno);
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
    fail(file, "write", problem);
  }
}

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

std::string file_name(const std::string& part, int rank) {
  return "gradwire-" + part + "-rank-" + std::to_string(rank) + ".prom";
}

TextfileSink::TextfileSink(TextfileOptions options)
    : options_(std::move(options)), aggregate_([](observe::SourceId id) { return observe::source_of(id); }) {}

void TextfileSink::take(const observe::Round& round) {
  aggregate_.add(round, options_.rank);
  const std::uint64_t now = round.scale.nanoseconds;
  if (!round.last && next_ && now < *next_) {
    return;
  }
  if (aggregate_.ranks().empty()) {
    return;  // soon
  }
  next_ = now + static_cast<std::uint64_t>(options_.interval.count());
  try {
    write(round);
  } catch (...) {
    if (!std::exchange(warned_, true)) {
      options_.warn("metrics: " + std::string(current_error().what()) +
                    "; the job goes on, and so do tries (GRADWIRE_METRICS). Told once");
    }
  }
}

void TextfileSink::write(const observe::Round& round) {
  std::error_code error;
  std::filesystem::create_directories(options_.directory, error);
  if (error) {
    throw Error(ErrorCode::invalid_argument,
                "cannot make the directory " + options_.directory.string() + ": " + error.message());
  }
  const ReaderState reader{round.clock,      round.recorded, round.dropped, round.collector_seconds,
                           round.ring_bytes, round.last};
  const std::vector<ReplacedCalls> replaced = options_.replaced ? options_.replaced() : std::vector<ReplacedCalls>();
  for (const auto& [rank, totals] : aggregate_.ranks()) {
    const std::string name = file_name(options_.part, rank);
    if (cleared_.insert(rank).second) {
      clear_leftovers(options_.directory, name);
    }
    write_whole(options_.directory, name,
                to_text(families(totals, reader, replaced), {{"part", options_.part}, {"rank", std::to_string(rank)}}));
  }
}

}  // namespace gradwire::metrics

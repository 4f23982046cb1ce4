#include "transport/tcp/tcp_join_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "base/durable_file.hpp"
#include "base/log.hpp"
#include "base/read_file.hpp"
#include "gradwire/error.hpp"
#include "gradwire/version.hpp"

namespace gradwire::transport::tcp {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "gradwire-join";
constexpr std::size_t kMostBytes = 64U << 20U;
constexpr std::chrono::seconds kLookAtFile{5};  // for all processes of an old file

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::invalid_argument, what); }

std::string line_of(const Acquaintance& process) {
  return std::string(kMark) + " " + std::string(kVersion) + " " + std::to_string(process.id) + " " +
         process.card.to_text() + "\n";
}

// `version`: of the line.
std::optional<Acquaintance> read_line(const std::string& line, std::string& version) {
  std::istringstream stream(line);
  std::string mark;
  Acquaintance read;
  if (!(stream >> mark >> version >> read.id) || mark != kMark) {
    return std::nullopt;
  }
  std::string card;
  std::getline(stream, card);
  read.card = Card::from_text(card);
  return read;
}

enum class Versions : std::uint8_t { own, any };

std::vector<Acquaintance> read_lines(const fs::path& file, Versions allowed) {
  std::istringstream lines(read_file(file, kMostBytes, "join file"));
  std::vector<Acquaintance> processes;
  std::string version;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {  // one that is being written has no end
    const auto process = read_line(line, version);
    if (!process) {
      refuse(file.string() + " is there, and is no join file of gradwire; name another one");
    }
    if (allowed == Versions::own && version != kVersion) {
      throw Error(ErrorCode::mismatch, file.string() + " is of a job with gradwire " + version.substr(0, 20) +
                                           ", and this process has " + std::string(kVersion) +
                                           "; all processes of a job need the same version");
    }
    processes.push_back(*process);
  }
  return processes;
}

}  // namespace

void check_join_file_is_free(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (!fs::is_directory(folder)) {
    refuse("the join file " + file.string() + " cannot be written: " + folder.string() +
           " is no folder; make it, or name another file");
  }
  if (!fs::exists(file)) {
    return;
  }
  const auto until = Clock::now() + kLookAtFile;
  for (const Acquaintance& process : read_lines(file, Versions::any)) {
    std::string why;
    if (process.card.reach(until, {.rank = kFirstToken, .control = 1}, process.id, why).valid()) {
      refuse(file.string() + " belongs to a job that runs: its process " + std::to_string(process.id) +
             " answers; name another join file");
    }
  }
}

void write_join_file(const fs::path& file, const std::vector<Acquaintance>& processes) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  DurableFile written(folder, file.filename().string(), [&](std::ostream& out) {
    for (const Acquaintance& process : processes) {
      out << line_of(process);
    }
  });
  written.commit();
}

void append_to_join_file(const fs::path& file, const Acquaintance& process) {
  const std::string line = line_of(process);
  const Socket opened(open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));  // NOLINT(*-vararg)
  if (!opened.valid() || write(opened.fd(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    log(LogLevel::warning, "this process cannot add itself to the join file " + file.string() + " (" +
                               system_text(errno) + "): once those that stand there have ended nobody can join");
  }
}

std::vector<Acquaintance> read_join_file(const fs::path& file) { return read_lines(file, Versions::own); }

}  // namespace gradwire::transport::tcp

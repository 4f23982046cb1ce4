// gradwire doctor: in a rank of a job it becomes the checking program; before a launcher it starts that job.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/text.hpp"
#include "cli/build_info.hpp"
#include "cli/commands.hpp"
#include "cli/launch.hpp"
#include "cli/preload.hpp"
#include "cli/process.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kProblemStatus = 1;

// Arguments with facts that the program cannot know: how this tool was built, and where it finds libraries to preload.
std::vector<std::string> arguments_for(const DoctorOptions& options) {
  std::vector<std::string> arguments{"--build", kBuild};
  const auto add = [&](const std::string& library, const std::string& name) {
    arguments.insert(arguments.end(),
                     {"--preload", library + "=" + find_preload(this_program(), name).value_or("").string()});
  };
  for (const Library library : {Library::open_mpi, Library::mpich, Library::nccl}) {
    add(std::string(to_string(library)), preload_name(library));
  }
  add("any MPI", kAnyPreload);
  if (options.json) {
    arguments.insert(arguments.end(), {"--json", *options.json});
  }
  if (options.launched) {
    arguments.insert(arguments.end(), {"--launched", "1"});
  }
  return arguments;
}

// The number of problems in "gradwire doctor: 2 ranks on 1 host, 1 problem, 0 warnings". A launcher may write before it
// which rank's line it is.
std::optional<int> problems_in(std::string_view line) {
  const std::size_t head = line.find("gradwire doctor: ");
  const std::size_t word = line.find(" problem", head == std::string_view::npos ? line.size() : head);
  if (word == std::string_view::npos) {
    return std::nullopt;
  }
  const std::size_t number = line.find_last_of(' ', word - 1) + 1;
  return std::atoi(std::string(line.substr(number, word - number)).c_str());
}

// Replaces standard output as long as it lives: it passes the output on, and reads it.
class OutputWatch {
 public:
  OutputWatch() {
    std::array<int, 2> ends{};
    before_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (before_ < 0 || ::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw Error(ErrorCode::unsupported,
                  "doctor: standard output cannot be watched (" + text::reason_of(errno) + "); is it closed?");
    }
    from_ = ends[0];
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[1]);
    // This thread takes no signals, which are for the thread that waits for the command.
    sigset_t all;
    sigset_t mask;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &mask);
    reader_ = std::thread([this] { read(); });
    ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  }
  ~OutputWatch() { stop(); }
  OutputWatch(const OutputWatch&) = delete;
  OutputWatch& operator=(const OutputWatch&) = delete;

  /// The number of problems; nothing: no rank reported. To be called once the command has ended.
  [[nodiscard]] std::optional<int> problems() {
    stop();
    return problems_;
  }

 private:
  void stop() {
    if (reader_.joinable()) {
      ::dup2(before_, STDOUT_FILENO);
      ended_ = true;
      reader_.join();
      ::close(before_);
      ::close(from_);
    }
  }
  // Reads the output to its end. Processes that the command left behind may hold it open, so after the command's end it
  // reads only until the first silence.
  void read() {
    constexpr int kSilence = 100;  // ms
    std::array<char, 4096> buffer{};
    for (;;) {
      const bool last = ended_;
      pollfd waits{.fd = from_, .events = POLLIN, .revents = 0};
      const int ready = ::poll(&waits, 1, kSilence);
      if (ready == 0 && last) {
        return;
      }
      if (ready > 0) {
        const ssize_t got = ::read(from_, buffer.data(), buffer.size());
        if (got <= 0) {
          return;
        }
        take({buffer.data(), static_cast<std::size_t>(got)});
      }
    }
  }
  void take(std::string_view text) {
    for (std::string_view left = text; !left.empty();) {
      const ssize_t wrote = ::write(before_, left.data(), left.size());
      left.remove_prefix(wrote > 0 ? static_cast<std::size_t>(wrote) : left.size());
    }
    constexpr std::size_t kLongest = 4096;  // longer lines are not examined
    for (const char c : text) {
      if (c == '\n') {
        problems_ = problems_ ? problems_ : problems_in(line_);
        line_.clear();
      } else if (line_.size() < kLongest) {
        line_ += c;
      }
    }
  }

  int before_ = -1;
  int from_ = -1;
  std::atomic<bool> ended_{false};
  std::thread reader_;
  std::string line_;
  std::optional<int> problems_;
};

// Starts the command. The launcher's own messages are shown; it has none about the ranks' end, since they end with 0.
int launch(const std::vector<std::string>& command, std::ostream& out) {
  OutputWatch watch;
  const int status = CommandRunner().run(command, {}).status;
  const std::optional<int> problems = watch.problems();
  if (problems && (status == 0 || status == kProblemStatus)) {
    return *problems > 0 ? kProblemStatus : status == 0 ? 0 : kUsageStatus;
  }
  // Other statuses above 128 do not mean a signal: Open MPI's launcher ends with 134 where it finds no program, and
  // with 255 where it finds no host.
  constexpr std::array kByUser{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
  const bool by_user = std::find(kByUser.begin(), kByUser.end(), status - kSignalled) != kByUser.end();
  if (problems || by_user) {
    return status;
  }
  out << "gradwire: doctor: the launcher ended with " << status << " and no rank reported; "
      << (status == 0 ? "name" : "see what it says, and name") << " the launcher and its options alone, such as "
      << "gradwire doctor -- mpirun -np 4: gradwire itself is the job\n";
  return kUsageStatus;
}

}  // namespace

void become_doctor(const std::string& command, std::vector<std::string> arguments) {
  const fs::path program = find_helper(this_program(), "gradwire-doctor");
  arguments.insert(arguments.begin(), program.string());
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) {
    pointers.push_back(argument.data());
  }
  pointers.push_back(nullptr);
  execv(program.c_str(), pointers.data());
  throw Error(ErrorCode::unsupported,
              command + ": " + program.string() + " cannot be started (" + text::reason_of(errno) +
                  "); it comes with builds that found MPI, in libexec/gradwire beside the folder of this tool");
}

int doctor(const DoctorOptions& options, std::ostream& out) {
  if (options.json && options.json->empty()) {
    throw Error(ErrorCode::invalid_argument, "--json has an empty name; name a file");
  }
  if (options.command.empty()) {
    become_doctor("doctor", arguments_for(options));
  }
  if (only_submits(options.command)) {
    throw Error(ErrorCode::invalid_argument, options.command.front() +
                                                 " returns before the job runs; put gradwire doctor inside: in the "
                                                 "script, gradwire doctor -- srun or gradwire doctor -- mpirun");
  }
  if (!find_program(options.command.front())) {
    out << "gradwire: " << options.command.front()
        << " was not found; install an MPI or write the path of its mpirun\n";
    return kCannotRunStatus;
  }
  std::vector<std::string> command = options.command;
  command.insert(command.end(), {this_program().string(), "doctor", "--launched"});
  if (options.json) {
    command.insert(command.end(), {"--json", fs::absolute(*options.json).string()});
  }
  return launch(command, out);
}

}  // namespace gradwire::cli

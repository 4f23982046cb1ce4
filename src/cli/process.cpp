#include "cli/process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

constexpr std::chrono::milliseconds kToReachAll{100};  // until a signal has reached all processes one by one

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

// The environment of this process, with some variables replaced or added.
std::vector<std::string> environment_with(const Environment& added) {
  std::vector<std::string> texts;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const auto& [other, value] : added) {
      replaced |= other == name;
    }
    if (!replaced) {
      texts.emplace_back(text);
    }
  }
  for (const auto& [name, value] : added) {
    texts.push_back(name + "=" + value);
  }
  return texts;
}

int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : kSignalled + WTERMSIG(wait_status);
}

// Waits for a child; returns its exit status, or 128 + signal.
int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      throw Error(ErrorCode::internal, "waitpid failed: " + text::reason_of(errno));
    }
  }
  return status_of(status);
}

struct Spawned {
  pid_t child = 0;  // 0: it could not be started
  int failed = 0;   // why, as in errno
};

// Starts a command without input, whose output and standard error go to the descriptors, or nowhere.
Spawned spawn_silent(const std::vector<std::string>& command, const int* output, const int* error) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (const auto& [from, to] : {std::pair(output, STDOUT_FILENO), std::pair(error, STDERR_FILENO)}) {
    if (from != nullptr) {
      posix_spawn_file_actions_adddup2(&actions, *from, to);
    } else {
      posix_spawn_file_actions_addopen(&actions, to, "/dev/null", O_WRONLY, 0);
    }
  }
  std::vector<std::string> arguments = command;
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, command.front().c_str(), &actions, nullptr, pointers(arguments).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return {.child = failed == 0 ? child : 0, .failed = failed};
}

// A process that does nothing. If a signal ends it, the signal was sent to all processes: by a terminal, by `timeout`,
// which sends it to its child and then to the child's group, or by a queue, which sends it to each process of a job.
// The command then got it, too, and must not get it twice: mpirun would end at once and leave its ranks behind.
class Sentinel {
 public:
  Sentinel() { start(); }
  ~Sentinel() { stop(); }
  Sentinel(const Sentinel&) = delete;
  Sentinel& operator=(const Sentinel&) = delete;

  void stop() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    pid_ = -1;
  }
  /// Whether a signal has ended it; if so, a new one is started.
  [[nodiscard]] bool was_ended() {
    if (pid_ <= 0 || ::waitpid(pid_, nullptr, WNOHANG) == 0) {
      return false;
    }
    start();
    return true;
  }

 private:
  void start() {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::prctl(PR_SET_DUMPABLE, 0);  // SIGQUIT
      sigset_t none;
      sigemptyset(&none);
      ::sigprocmask(SIG_SETMASK, &none, nullptr);
      for (;;) {
        ::pause();
      }
    }
  }

  pid_t pid_ = -1;
};

// Waits until the command has ended, and reaps orphans that became children of this process.
std::optional<int> reap(pid_t command) {
  std::optional<int> status;
  int wait_status = 0;
  for (pid_t ended = 0; (ended = ::waitpid(-1, &wait_status, WNOHANG)) > 0;) {
    if (ended == command) {
      status = status_of(wait_status);
    }
  }
  return status;
}

void signal_children(int signal) {
  std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  for (pid_t child = 0; children >> child;) {
    ::kill(child, signal);
  }
}

// A script that a signal ended leaves its launcher behind, which is still ending its ranks, or has not got the signal.
// A launcher that has got it must not get it again.
void wait_for_orphans(int signal, bool told) {
  constexpr std::chrono::seconds kHeard{2};
  constexpr std::chrono::seconds kLongest{12};
  const auto begin = std::chrono::steady_clock::now();
  for (pid_t ended = 1; ended >= 0; ended = ::waitpid(-1, nullptr, WNOHANG)) {  // until no child is left
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited >= kLongest) {
      return;
    }
    if (waited >= kHeard && !told) {
      signal_children(signal);
      told = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

// Takes the signals of this process while a command runs, one by one, so that none interrupts anything.
class CommandRunner::Signals {
 public:
  Signals() {
    // If the parent process ignores SIGCHLD, this process could not wait for children.
    struct sigaction child {};
    child.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &child, &child_before_);
    sigemptyset(&taken_);
    sigaddset(&taken_, SIGCHLD);
    for (const int signal : kHandedOn) {
      struct sigaction now {};
      ::sigaction(signal, nullptr, &now);
      if (now.sa_handler != SIG_IGN) {  // nohup makes its child ignore SIGHUP
        sigaddset(&taken_, signal);
      }
    }
    ::sigprocmask(SIG_BLOCK, &taken_, &before_);
  }
  ~Signals() {
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    ::sigaction(SIGCHLD, &child_before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  [[nodiscard]] const sigset_t& before() const noexcept { return before_; }
  [[nodiscard]] int next() const {
    int signal = -1;
    while (signal < 0) {
      signal = ::sigwaitinfo(&taken_, nullptr);
    }
    return signal;
  }
  /// The next signal; -1 where none comes in time.
  [[nodiscard]] int next(std::chrono::nanoseconds within) const {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(within);
    timespec time{};
    time.tv_sec = seconds.count();
    time.tv_nsec = (within - seconds).count();
    return ::sigtimedwait(&taken_, nullptr, &time);
  }
  /// Drops further signals of the same number that have come meanwhile.
  void drop(int signal) const {
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    const timespec now{};
    while (::sigtimedwait(&only, nullptr, &now) > 0) {
    }
  }

  /// Whether the signal asks for an end. A queue sends the other ones before that, so that a job saves its state.
  [[nodiscard]] static bool ends(int signal) { return signal != SIGUSR1 && signal != SIGUSR2; }

 private:
  static constexpr std::array kHandedOn{SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGXCPU, SIGUSR1, SIGUSR2};

  struct sigaction child_before_ {};
  sigset_t taken_{};
  sigset_t before_{};
};

std::optional<std::filesystem::path> find_program(const std::string& name) {
  const auto executable = [](const std::filesystem::path& file) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) {
    return executable(name) ? std::optional<std::filesystem::path>(name) : std::nullopt;
  }
  const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): read only
  std::string_view folders = path == nullptr ? std::string_view("/usr/bin:/bin") : std::string_view(path);
  while (!name.empty() && !folders.empty()) {
    const std::string_view folder = folders.substr(0, folders.find(':'));
    folders.remove_prefix(std::min(folders.size(), folder.size() + 1));
    const std::filesystem::path file = std::filesystem::path(folder.empty() ? "." : folder) / name;
    if (executable(file)) {
      return file;
    }
  }
  return std::nullopt;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read only
  return value == nullptr ? "" : value;
}

std::string output_of(const std::vector<std::string>& command) {
  return run_and_read(command, StandardError::dropped).text;
}

ProgramOutput run_and_read(const std::vector<std::string>& command, StandardError error) {
  const bool with_error = error == StandardError::taken;
  const auto failed = [&](int why) {
    return ProgramOutput{kCannotRunStatus, with_error ? text::reason_of(why) : std::string()};
  };
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return failed(errno);
  }
  const Spawned program = spawn_silent(command, &ends[1], with_error ? &ends[1] : nullptr);
  ::close(ends[1]);
  ProgramOutput output;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 1; program.child != 0 && got != 0;) {
    got = ::read(ends[0], buffer.data(), buffer.size());
    if (got < 0 && errno != EINTR) {
      break;
    }
    output.text.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  ::close(ends[0]);
  if (program.child == 0) {
    return failed(program.failed);
  }
  output.status = wait_for(program.child);
  return output;
}

CommandRunner::CommandRunner() : signals_(std::make_unique<Signals>()) {}
CommandRunner::~CommandRunner() = default;

Ended CommandRunner::run(const std::vector<std::string>& command, const Environment& added) {
  std::vector<std::string> arguments = command;
  std::vector<std::string> environment = environment_with(added);
  Sentinel sentinel;
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);  // wait_for_orphans() needs it
  // The child starts with the signal settings that it would have without us.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setsigmask(&attributes, &signals_->before());
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, command.front().c_str(), nullptr, &attributes, pointers(arguments).data(),
                                    pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    throw Error(ErrorCode::invalid_argument,
                command.front() + " cannot be started: " + text::reason_of(failed) +
                    (failed == ENOEXEC ? "; a script begins with the line #!/bin/sh, or has sh before it" : ""));
  }
  std::optional<int> status;
  int last = 0;
  bool reached_all = false;
  while (!status) {
    const int signal = signals_->next();
    if (signal != SIGCHLD) {
      std::this_thread::sleep_for(kToReachAll);
      const bool all = sentinel.was_ended();
      if (!all) {
        ::kill(child, signal);
      }
      signals_->drop(signal);
      if (Signals::ends(signal)) {
        last = signal;
        reached_all |= all;
      }
    }
    status = reap(child);
  }
  if (last != 0) {
    sentinel.stop();
    wait_for_orphans(last, reached_all);
  }
  return {.status = *status, .signal = last};
}

void CommandRunner::end_orphans() {
  wait_for_orphans(SIGTERM, false);
  constexpr int kTries = 100;  // children of a killed process become children of this process, too
  for (int i = 0; i < kTries && ::waitpid(-1, nullptr, WNOHANG) >= 0; ++i) {
    signal_children(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int CommandRunner::pause(std::chrono::nanoseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  for (;;) {
    const auto left = std::max(end - std::chrono::steady_clock::now(), std::chrono::steady_clock::duration::zero());
    const int signal = signals_->next(left);
    if (signal > 0 && signal != SIGCHLD && Signals::ends(signal)) {
      return signal;
    }
    if (signal < 0 && left.count() == 0) {
      return 0;
    }
  }
}

std::vector<bool> succeed(const std::vector<std::vector<std::string>>& commands, std::chrono::nanoseconds within) {
  std::vector<pid_t> children(commands.size());
  std::transform(commands.begin(), commands.end(), children.begin(),
                 [](const std::vector<std::string>& command) { return spawn_silent(command, nullptr, nullptr).child; });
  std::vector<bool> succeeded(commands.size());
  const auto end = std::chrono::steady_clock::now() + within;
  for (std::size_t left = children.size(); left > 0;) {
    const bool late = std::chrono::steady_clock::now() >= end;
    left = 0;
    for (std::size_t i = 0; i < children.size(); ++i) {
      int status = 0;
      if (children[i] == 0) {
        continue;
      }
      if (late) {
        ::kill(children[i], SIGKILL);
      }
      const pid_t ended = ::waitpid(children[i], &status, late ? 0 : WNOHANG);
      if (ended == 0) {
        ++left;
      } else {
        succeeded[i] = ended == children[i] && !late && status == 0;
        children[i] = 0;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(left > 0 ? 5 : 0));
  }
  return succeeded;
}

}  // namespace gradwire::cli

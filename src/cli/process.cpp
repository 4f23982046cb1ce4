#include "cli/process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <thread>

#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

constexpr int kSignalled = 128;  // as shells report a process that a signal ended

std::atomic<pid_t> g_child{0};
std::atomic<int> g_signal{0};  // the last that came

// What a terminal sends goes to the child, too; only what a process sent to this one is handed on.
void hand_on(int signal, siginfo_t* info, void*) {
  g_signal.store(signal);
  const pid_t child = g_child.load();
  if (child > 0 && (info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_TKILL)) {
    ::kill(child, signal);
  }
}

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

// Exit status of a child, or 128 + signal. Orphans that came to us are reaped on the way.
int wait_for(pid_t child) {
  int status = 0;
  for (pid_t ended = 0; ended != child;) {
    ended = ::waitpid(-1, &status, 0);
    if (ended < 0 && errno != EINTR) {
      throw Error(ErrorCode::internal,
                  std::string("waitpid failed: ") + std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
    }
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
}

void signal_children(int signal) {
  std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  for (pid_t child = 0; children >> child;) {
    ::kill(child, signal);
  }
}

// A script that a signal ended leaves its launcher behind, which is still ending its ranks, or has not heard of the
// signal.
void wait_for_orphans(int signal) {
  constexpr std::chrono::seconds kHeard{2};
  constexpr std::chrono::seconds kLongest{12};
  const auto begin = std::chrono::steady_clock::now();
  bool told = false;
  for (pid_t ended = 1; ended >= 0; ended = ::waitpid(-1, nullptr, WNOHANG)) {  // until there is none
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

// Signals while a child runs: those that it must see are handed on, what a terminal sends to both is left to it.
class Signals {
 public:
  Signals() {
    g_signal.store(0);
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = hand_on;
    for (std::size_t i = 0; i < kNumbers.size(); ++i) {
      ::sigaction(kNumbers[i], nullptr, &old_[i]);
      if (old_[i].sa_handler != SIG_IGN) {  // as nohup has it for SIGHUP
        ::sigaction(kNumbers[i], &action, nullptr);
      }
    }
  }
  ~Signals() {
    for (std::size_t i = 0; i < kNumbers.size(); ++i) {
      ::sigaction(kNumbers[i], &old_[i], nullptr);
    }
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  static constexpr std::array kNumbers{SIGINT, SIGQUIT, SIGTERM, SIGHUP};
  std::array<struct sigaction, 4> old_{};
};

}  // namespace

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

std::string output_of(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return {};
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<std::string> arguments = command;
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, command.front().c_str(), &actions, nullptr, pointers(arguments).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string output;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; failed == 0 && (got = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
    output.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  if (failed == 0) {
    (void)wait_for(child);
  }
  return output;
}

int run_and_wait(const std::vector<std::string>& command, const Environment& added) {
  std::vector<std::string> arguments = command;
  std::vector<std::string> environment = environment_with(added);
  // The child starts with signals as they are without us.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGQUIT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) {  // nohup stays in force
      sigaddset(&defaults, signal);
    }
  }
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const Signals signals;
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);  // for wait_for_orphans
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, command.front().c_str(), nullptr, &attributes, pointers(arguments).data(),
                                    pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    throw Error(ErrorCode::invalid_argument,
                command.front() + " cannot be started: " + std::strerror(failed));  // NOLINT(concurrency-mt-unsafe)
  }
  g_child.store(child);
  const int status = wait_for(child);
  g_child.store(0);
  if (const int signal = g_signal.load(); signal != 0) {
    wait_for_orphans(signal);
  }
  return status;
}

}  // namespace gradwire::cli

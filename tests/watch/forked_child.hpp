// Children that a test of files forks, and the names of the files that they leave.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace gradwire::watch {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

/// Returns the names of the files in a folder, in alphabetical order.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Forks a child that runs `body`, which must end it.
template <typename Body>
pid_t start_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    body();
    std::_Exit(99);
  }
  return child;
}

/// Waits for a child and returns its exit status, or 128 plus the signal that ended it.
inline int status_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace gradwire::watch

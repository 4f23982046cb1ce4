// Shared by tests of the HTTP server: child processes that serve, their pages, and how they ended.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "observe/watching.hpp"
#include "tests/support/http_get.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/watch/forked_child.hpp"

namespace gradwire::watch {

using gradwire::test::connect_to;
using gradwire::test::free_ports;
using gradwire::test::http_get;
using gradwire::test::listen_on;
using gradwire::test::read_text;
using gradwire::test::ScratchFolder;

class Http : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kThreadSanitizer) {
      GTEST_SKIP() << "it allows no threads in a child of a process with threads";
    }
  }
};

// Runs `body` in a child process, since some things begin only once per process.
template <typename Body>
pid_t start_child(const std::string& metrics, Body&& body) {
  return start_child([&] {
    ::setenv("GRADWIRE_JOB", "tried", 1);
    ::setenv("GRADWIRE_METRICS", metrics.c_str(), 1);
    body();
  });
}

inline std::string page_at(std::uint16_t port) {
  for (int i = 0; i < 1000; ++i) {
    if (const auto page = http_get(port, "/metrics"); page && page->find("gradwire_info") != std::string::npos) {
      return *page;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return "nobody listens";
}

inline void serve_rank(int rank, std::string* told = nullptr) {
  observe::begin_watching({.rank = [rank] { return std::optional(rank); },
                           .warn =
                               [told](const std::string& text) {
                                 if (told != nullptr) {
                                   *told += text + "\n";
                                 }
                               }});
}

inline std::string http(std::uint16_t port, const std::string& behind = "") {
  return "http:" + std::to_string(port) + behind;
}

// Returns the local addresses of all listening sockets of this process, as the kernel writes them.
inline std::vector<std::string> listening() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    own.insert(std::filesystem::read_symlink(entry.path(), gone).string());
  }
  std::vector<std::string> addresses;
  for (const char* file : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::vector<std::string> word;
      for (std::string each; words >> each;) {
        word.push_back(each);
      }
      constexpr const char* kListens = "0A";
      if (word.size() > 9 && word[3] == kListens && own.contains("socket:[" + word[9] + "]")) {
        addresses.push_back(word[1].substr(0, word[1].find(':')));
      }
    }
  }
  return addresses;
}

}  // namespace gradwire::watch

// Collects the lines that are logged while a test runs.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"

namespace gradwire::test {

/// Collects lines from its construction on, in place of stderr. Only one may exist at a time; any thread may log.
class HeardLog {
 public:
  HeardLog() {
    lines().clear();
    set_log_sink([](LogLevel /*level*/, std::string_view line) {
      const std::lock_guard lock(mutex());
      lines().emplace_back(line);
    });
  }
  ~HeardLog() { set_log_sink(nullptr); }
  HeardLog(const HeardLog&) = delete;
  HeardLog& operator=(const HeardLog&) = delete;
  [[nodiscard]] static std::vector<std::string> all() {
    const std::lock_guard lock(mutex());
    return lines();
  }

 private:
  static std::mutex& mutex() {
    static std::mutex made;
    return made;
  }
  static std::vector<std::string>& lines() {
    static std::vector<std::string> made;
    return made;
  }
};

}  // namespace gradwire::test

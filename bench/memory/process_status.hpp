// Reads how much memory the system counts for this process.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace gradwire::bench {

/// Returns the bytes of a field of /proc/self/status, such as "VmHWM:"; 0 if there is no such field.
inline std::uint64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == field) {
      std::uint64_t kibibytes = 0;
      status >> kibibytes;
      return kibibytes * 1024;
    }
  }
  return 0;
}

}  // namespace gradwire::bench

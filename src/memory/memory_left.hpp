// Finds how much memory the system leaves to this process: by its cgroups (version 2 and 1) and the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gradwire::memory {

struct MemoryLeft {
  std::uint64_t bytes = 0;
  std::string source;  // "the cgroup /user.slice", "this machine"
};

/// Returns the least that the cgroup of this process, those around it and the machine leave. Memory that the kernel
/// keeps only as a cache of files counts as left. `root`: where /proc and /sys lie, for tests. Without any of these
/// files there is no limit.
[[nodiscard]] MemoryLeft memory_left(const std::filesystem::path& root = "/");

}  // namespace gradwire::memory

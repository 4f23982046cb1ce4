#include "memory/memory_left.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace gradwire::memory {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
// cgroups of version 1 write the largest multiple of a page where there is no limit.
constexpr std::uint64_t kLeastUnlimited = std::uint64_t{1} << 60;

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

// Returns the number that a file holds; nothing where it has none, such as "max".
std::optional<std::uint64_t> read_number(const fs::path& file) {
  std::ifstream in(file);
  std::string text;
  return in >> text ? number_in(text) : std::nullopt;
}

// Returns the number behind `key` in a file of lines "key value" or "key: value".
std::optional<std::uint64_t> read_field(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    std::string value;
    if (words >> name >> value && name == key) {
      return number_in(value);
    }
  }
  return std::nullopt;
}

struct Version {
  std::string_view folder;  // below /sys/fs/cgroup
  std::string_view limit;
  std::string_view used;
  std::string_view cache;  // what fields of memory.stat about caches of files begin with
};
constexpr Version kVersion2{"", "memory.max", "memory.current", ""};
constexpr Version kHybrid2{"unified", "memory.max", "memory.current", ""};
constexpr Version kVersion1{"memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"};

// Lowers `left` to what the group `path` and the groups around it leave. Inside a container the path may be that of the
// host, and only the mounted root be there.
void apply(const Version& version, const fs::path& root, fs::path path, MemoryLeft& left) {
  const fs::path mount = root / "sys/fs/cgroup" / version.folder;
  for (;; path = path.parent_path()) {
    const fs::path folder = mount / path.relative_path();
    const auto limit = read_number(folder / version.limit);
    const auto used = read_number(folder / version.used);
    if (limit && used && *limit < kLeastUnlimited) {
      std::uint64_t cache = 0;
      for (const char* files : {"inactive_file", "active_file"}) {  // files that are read again are active
        cache += read_field(folder / "memory.stat", std::string(version.cache) + files).value_or(0);
      }
      const std::uint64_t held = *used - std::min(cache, *used);
      if (const std::uint64_t bytes = *limit - std::min(held, *limit); bytes < left.bytes) {
        left = {bytes, "the cgroup " + path.string()};
      }
    }
    if (!path.has_relative_path()) {
      return;
    }
  }
}

}  // namespace

MemoryLeft memory_left(const fs::path& root) {
  MemoryLeft left{kUnlimited, "no limit"};
  if (const auto kilobytes = read_field(root / "proc/meminfo", "MemAvailable:")) {
    left = {*kilobytes * 1024, "this machine"};
  }
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // number:controllers:path
    const std::size_t controllers = line.find(':') + 1;
    const std::size_t path = controllers == 0 ? std::string::npos : line.find(':', controllers);
    if (path == std::string::npos) {
      continue;
    }
    const std::string names = "," + line.substr(controllers, path - controllers) + ",";
    const fs::path group = line.substr(path + 1);
    if (names == ",,") {
      apply(kVersion2, root, group, left);
      apply(kHybrid2, root, group, left);
    } else if (names.find(",memory,") != std::string::npos) {
      apply(kVersion1, root, group, left);
    }
  }
  return left;
}

}  // namespace gradwire::memory

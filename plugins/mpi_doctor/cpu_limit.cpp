// The CPU time that the control groups of a process allow: those of containers and of batch queues.
#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include "plugins/mpi_doctor/facts.hpp"

namespace gradwire::doctor {
namespace {

namespace fs = std::filesystem;

// The folder of the control groups and the group of the process, for one version of control groups.
struct Place {
  fs::path tree;
  std::string group;   // "/a/b"
  bool second = true;  // the second version, else the first
};

// Lines of /proc/self/cgroup: "0::/a/b" of the second version, "4:cpu,cpuacct:/a/b" of the first.
std::optional<Place> place_of(const std::string& line, const fs::path& trees) {
  const std::size_t first = line.find(':');
  const std::size_t second = line.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos) {
    return std::nullopt;
  }
  const std::string controllers = line.substr(first + 1, second - first - 1);
  const std::string group = line.substr(second + 1);
  if (controllers.empty()) {
    std::error_code ignored;
    const fs::path unified = trees / "unified";  // if both versions exist
    return Place{fs::exists(unified, ignored) ? unified : trees, group, true};
  }
  return ("," + controllers + ",").find(",cpu,") != std::string::npos
             ? std::optional(Place{trees / controllers, group, false})
             : std::nullopt;
}

double limit_at(const fs::path& folder, bool second) {
  if (second) {
    return parse_cpu_max(text_of(folder / "cpu.max"));
  }
  std::string quota = text_of(folder / "cpu.cfs_quota_us");
  std::replace(quota.begin(), quota.end(), '\n', ' ');
  return parse_cpu_max(quota + text_of(folder / "cpu.cfs_period_us"));
}

}  // namespace

double parse_cpu_max(std::string_view text) {
  const std::size_t blank = std::min(text.find(' '), text.size());
  long long quota = 0;
  long long period = 0;
  const auto end = std::from_chars(text.data(), text.data() + blank, quota);
  if (end.ec != std::errc() || end.ptr != text.data() + blank || blank == text.size()) {
    return 0;
  }
  static_cast<void>(std::from_chars(text.data() + blank + 1, text.data() + text.size(), period));
  return quota > 0 && period > 0 ? static_cast<double>(quota) / static_cast<double>(period) : 0;
}

CpuLimit read_cpu_limit(const fs::path& root) {
  CpuLimit least;
  std::istringstream lines(text_of(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const std::optional<Place> place = place_of(line, root / "sys/fs/cgroup");
    if (!place) {
      continue;
    }
    // In a container the group may have the host's name for it; its files then lie at the top.
    for (fs::path group = fs::path(place->group).lexically_normal();; group = group.parent_path()) {
      const double limit = limit_at(place->tree / group.relative_path(), place->second);
      if (limit > 0 && (least.cores == 0 || limit < least.cores)) {
        least = {limit, group.string()};
      }
      if (!group.has_relative_path()) {
        break;
      }
    }
  }
  return least;
}

}  // namespace gradwire::doctor

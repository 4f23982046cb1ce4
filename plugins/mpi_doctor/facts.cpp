#include "plugins/mpi_doctor/facts.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <sstream>

#include "base/environment.hpp"
#include "base/metrics_target.hpp"
#include "base/read_file.hpp"
#include "base/report_place.hpp"
#include "base/trace_target.hpp"
#include "gradwire/error.hpp"
#include "gradwire/policy.hpp"
#include "gradwire/version.hpp"
#include "plan/call_plan.hpp"
#include "plan/plan.hpp"
#include "security/cryptography.hpp"
#include "security/job_key.hpp"
#include "security/key_file.hpp"
#include "security/key_schedule.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestLibrary = std::size_t{1} << 30;
constexpr int kMostCores = 1 << 16;

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

std::optional<long> number_of(std::string_view text) {
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

int number_in(const fs::path& file) {
  return static_cast<int>(std::clamp(number_of(text_of(file)).value_or(0), 0L, 1L << 30));
}

// Whether the interface is a bridge or a pair that programs make for containers and virtual machines inside the host.
bool is_internal(std::string_view name) {
  constexpr std::array<std::string_view, 9> kPrefixes{"lo",  "docker", "veth",    "br-", "virbr",
                                                      "cni", "cali",   "flannel", "vnet"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::vector<Interface> read_interfaces(const fs::path& folder) {
  std::vector<Interface> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    const std::string state = trimmed(text_of(entry.path() / "operstate"));
    const bool up = state == "up" || (state == "unknown" && number_in(entry.path() / "carrier") == 1);
    if (!is_internal(name) && up) {
      found.push_back({.name = name,
                       .mtu = number_in(entry.path() / "mtu"),
                       .megabits = number_in(entry.path() / "speed"),
                       .physical = fs::exists(entry.path() / "device", ignored)});
    }
  }
  std::sort(found.begin(), found.end(), [](const Interface& a, const Interface& b) { return a.name < b.name; });
  return found;
}

std::vector<std::vector<int>> read_numa_nodes(const fs::path& folder) {
  std::vector<std::vector<int>> nodes;
  std::error_code ignored;
  for (int node = 0; fs::exists(folder / ("node" + std::to_string(node)), ignored); ++node) {
    nodes.push_back(parse_cpu_list(text_of(folder / ("node" + std::to_string(node)) / "cpulist")));
  }
  return nodes;
}

void read_host(Facts& facts, const fs::path& root) {
  std::array<char, 256> name{};
  facts.host = ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
  facts.cores = parse_cpu_list(text_of(root / "sys/devices/system/cpu/online"));
  facts.mask = parse_cpu_list(parse_field(text_of(root / "proc/self/status"), "Cpus_allowed_list"));
  facts.cpu = read_cpu_limit(root);
  facts.numa_nodes = read_numa_nodes(root / "sys/devices/system/node");
  facts.huge_pages = parse_choice(text_of(root / "sys/kernel/mm/transparent_hugepage/enabled"));
  const std::string memory = text_of(root / "proc/meminfo");
  facts.memory = parse_memory(memory, "MemTotal");
  facts.memory_available = parse_memory(memory, "MemAvailable");
  struct statvfs shm {};
  if (::statvfs((root / "dev/shm").c_str(), &shm) == 0) {
    facts.shm = std::uint64_t{shm.f_blocks} * shm.f_frsize;
    facts.shm_free = std::uint64_t{shm.f_bavail} * shm.f_frsize;
  } else {
    facts.errors.emplace_back("/dev/shm is not there");
  }
  facts.tcp_send = parse_largest_buffer(text_of(root / "proc/sys/net/ipv4/tcp_wmem"));
  facts.tcp_receive = parse_largest_buffer(text_of(root / "proc/sys/net/ipv4/tcp_rmem"));
  facts.interfaces = read_interfaces(root / "sys/class/net");
}

/// Checks whether ranks could make the directory below an existing one. It makes nothing.
void try_directory(const std::string& variable, const std::string& directory, std::vector<std::string>& unwritable) {
  std::error_code ignored;
  fs::path place = fs::absolute(directory, ignored);
  while (!fs::exists(place, ignored) && place.has_relative_path()) {
    place = place.parent_path();
  }
  const bool is_folder = fs::is_directory(place, ignored);
  if (!is_folder || ::access(place.c_str(), W_OK | X_OK) != 0) {
    unwritable.push_back(variable + " names " + directory + ", but " + place.string() +
                         (is_folder ? " cannot be written" : " is no directory"));
  }
}

void try_places(std::vector<std::string>& unwritable) {
  const auto look = [&](const std::string& name, const auto& directories_of) {
    const auto value = environment(name);
    if (!value) {
      return;
    }
    try {
      for (const std::string& directory : directories_of(*value)) {
        if (!directory.empty()) {
          try_directory(name, directory, unwritable);
        }
      }
    } catch (const Error&) {  // the error is reported already
    }
  };
  using Directories = std::vector<std::string>;
  look("GRADWIRE_METRICS", [](const std::string& value) {
    const MetricsTarget target = MetricsTarget::parse(value);
    return Directories{target.directory, target.otlp};
  });
  look("GRADWIRE_TRACE", [](const std::string& value) { return Directories{TraceTarget::parse(value).directory}; });
  if (const auto report = report_place_of_environment(); report && report->directory) {
    try_directory("GRADWIRE_REPORT", report->named, unwritable);
  }
}

void read_variables(Facts& facts) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    if ((name.starts_with("GRADWIRE_") || name == "OMP_NUM_THREADS") && equals + 1 < text.size()) {
      facts.variables.emplace(name, text.substr(equals + 1));
    }
  }
  facts.environment_errors = environment_problems();
  try_places(facts.unwritable);
}

void read_policy(PolicyFile& policy) {
  policy.path = environment("GRADWIRE_POLICY").value_or("");
  if (policy.path.empty()) {
    return;
  }
  try {
    policy.fingerprint = plan::fingerprint_of(plan::CallPlanner(Policy::load(policy.path)).describe());
  } catch (const std::exception& error) {
    policy.error = error.what();
  }
}

void read_key(KeyFile& key) {
  try {
    if (const auto setting = security::key_setting()) {
      key.check = check_value(security::Cryptography::load(), security::read_key_file(setting->file));
    }
  } catch (const Error& error) {
    key.error = error.what();
  }
}

void read_addresses(Facts& facts) {
  try {
    facts.addresses = transport::tcp::addresses_for(environment("GRADWIRE_SOCKET_IFNAME").value_or(""), false);
  } catch (const Error& error) {
    facts.environment_errors.emplace_back(error.what());
  }
}

}  // namespace

std::string text_of(const fs::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cores;
  while (!text.empty()) {
    const std::string_view range = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), range.size() + 1));
    const std::size_t dash = range.find('-');
    const auto first = number_of(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number_of(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last >= kMostCores) {
      continue;
    }
    for (long core = *first; core <= *last; ++core) {
      cores.push_back(static_cast<int>(core));
    }
  }
  return cores;
}

std::string format_cpu_list(const std::vector<int>& cores) {
  std::string text;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) {
      ++last;
    }
    text += (text.empty() ? "" : ",") + std::to_string(cores[i]) +
            (last > i ? (last > i + 1 ? "-" : ",") + std::to_string(cores[last]) : "");
    i = last + 1;
  }
  return text;
}

std::string parse_choice(std::string_view text) {
  const std::size_t open = text.find('[');
  const std::size_t close = text.find(']', open);
  return close == std::string_view::npos ? "" : std::string(text.substr(open + 1, close - open - 1));
}

std::string parse_field(std::string_view text, std::string_view name) {
  const std::string wanted = std::string(name) + ":";
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with(wanted)) {
      return trimmed(std::string(line.substr(wanted.size())));
    }
  }
  return "";
}

std::uint64_t parse_memory(std::string_view text, std::string_view name) {
  constexpr std::uint64_t kUnit = 1024;
  const auto number = number_of(parse_field(text, name));
  return number && *number > 0 ? static_cast<std::uint64_t>(*number) * kUnit : 0;
}

std::uint64_t parse_largest_buffer(std::string_view text) {
  std::istringstream numbers{std::string(text)};
  std::uint64_t smallest = 0;
  std::uint64_t usual = 0;
  std::uint64_t largest = 0;
  return numbers >> smallest >> usual >> largest ? largest : 0;
}

Facts read_facts(const ToolFacts& told, const fs::path& root) {
  Facts facts;
  try {
    facts.version = kVersion;
    facts.build = told.build;
    read_host(facts, root);
    read_variables(facts);
    read_policy(facts.policy);
    read_key(facts.key);
    read_addresses(facts);
    for (PreloadFile preload : told.preloads) {
      if (!preload.path.empty()) {
        preload.fingerprint = plan::fingerprint_of(read_file(preload.path, kLargestLibrary, preload.name));
      }
      facts.preloads.push_back(preload);
    }
  } catch (const std::exception& error) {
    facts.errors.emplace_back(error.what());
  }
  return facts;
}

}  // namespace gradwire::doctor

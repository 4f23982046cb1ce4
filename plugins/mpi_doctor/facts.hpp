// The facts of one rank about itself and its host. This file does not use MPI: main.cpp adds MPI's facts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::doctor {

struct Interface {
  std::string name;
  int mtu = 0;
  int megabits = 0;       // rate of its link; 0: not known
  bool physical = false;  // a device is behind it
};

/// A library that `gradwire run` preloads.
struct PreloadFile {
  std::string name;         // the MPI that it is for: "Open MPI"
  std::string path;         // empty: not found
  std::string fingerprint;  // hash of its content
};

struct PolicyFile {
  std::string path;         // GRADWIRE_POLICY; empty: none, so the built-in policy
  std::string fingerprint;  // hash of its settings
  std::string error;        // the reason why it cannot be used
};

/// The key that GRADWIRE_KEY names; all empty: none.
struct KeyFile {
  std::string check;  // its check value
  std::string error;  // the reason why it cannot be used
};

/// The CPU time that a control group allows to all its processes, in a container or a batch queue.
struct CpuLimit {
  double cores = 0;   // number of cores that could run all the time; 0: no limit
  std::string group;  // the group with the limit, as the process sees it: "/job/step"
};

struct Facts {
  int rank = 0;
  int node = 0;  // the lowest rank that shares memory with it
  std::string host;
  std::string version, build;  // of the tool
  std::string mpi, threads;    // "Open MPI v4.1.4", "MPI_THREAD_MULTIPLE"
  std::vector<PreloadFile> preloads;
  PolicyFile policy;
  KeyFile key;
  std::vector<std::string> addresses;  // where gradwire's own connections would listen in a job of several hosts
  std::map<std::string, std::string> variables;  // GRADWIRE_*, OMP_NUM_THREADS
  std::vector<std::string> environment_errors;   // environment_problems()
  std::vector<std::string> unwritable;           // places named by variables that cannot be written, and why

  std::vector<int> cores;  // of the host
  std::vector<int> mask;   // cores that this process may use
  CpuLimit cpu;            // the lowest limit of its control group and the groups above it
  std::vector<std::vector<int>> numa_nodes;
  std::string huge_pages;  // "always", "madvise", "never"; empty: not known
  std::uint64_t memory = 0, memory_available = 0;
  std::uint64_t shm = 0, shm_free = 0;          // /dev/shm
  std::uint64_t tcp_send = 0, tcp_receive = 0;  // largest buffers of a connection; 0: not known
  std::vector<Interface> interfaces;            // interfaces that are up, without the loopback and those of containers
  double clock_offset = 0, clock_error = 0;     // seconds, relative to rank 0's clock

  std::vector<std::string> errors;  // facts that could not be read
};

/// The facts that the tool, which became this program, passed to it.
struct ToolFacts {
  std::string build;
  std::vector<PreloadFile> preloads;  // without fingerprints
};

/// Never throws; failures are in `errors`. `root` is the folder of proc/, sys/ and dev/: "/".
[[nodiscard]] Facts read_facts(const ToolFacts& told, const std::filesystem::path& root);

/// The text of a file; empty where it cannot be read: files of /proc and /sys differ between kernels and containers.
[[nodiscard]] std::string text_of(const std::filesystem::path& file);
/// The numbers in "0-3,8": 0 1 2 3 8, as far as the text can be read.
[[nodiscard]] std::vector<int> parse_cpu_list(std::string_view text);
[[nodiscard]] std::string format_cpu_list(const std::vector<int>& cores);
/// The choice in "always [madvise] never": madvise.
[[nodiscard]] std::string parse_choice(std::string_view text);
/// The bytes in "NAME:   123 kB" of /proc/meminfo; 0 if there is no such line.
[[nodiscard]] std::uint64_t parse_memory(std::string_view text, std::string_view name);
/// The text behind "NAME:" and blanks on a line of its own, as in /proc/self/status.
[[nodiscard]] std::string parse_field(std::string_view text, std::string_view name);
/// The third number of net.ipv4.tcp_rmem or tcp_wmem.
[[nodiscard]] std::uint64_t parse_largest_buffer(std::string_view text);

/// The number of cores in a control group's cpu.max: 1.5 for "150000 100000", 0 for "max 100000".
[[nodiscard]] double parse_cpu_max(std::string_view text);
[[nodiscard]] CpuLimit read_cpu_limit(const std::filesystem::path& root);

/// Converts facts to JSON and back, for the way to rank 0 and for --json. Ranks may have different versions: missing
/// fields keep their defaults.
[[nodiscard]] std::string to_json(const Facts& facts);
[[nodiscard]] Facts facts_from_json(const std::string& text);

}  // namespace gradwire::doctor

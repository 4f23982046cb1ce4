// What one rank sees of itself and of its host. No MPI: main.cpp adds what MPI says.
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
  bool physical = false;  // a device stands behind it
};

/// A library that `gradwire run` preloads.
struct PreloadFile {
  std::string name;         // whose jobs it is for: "Open MPI"
  std::string path;         // empty: not found
  std::string fingerprint;  // of what it holds
};

struct PolicyFile {
  std::string path;         // GRADWIRE_POLICY; empty: none, so the built-in policy
  std::string fingerprint;  // of what it asks for
  std::string error;        // why it cannot be used
};

/// CPU time that a control group gives all its processes: in a container, or of a batch queue.
struct CpuLimit {
  double cores = 0;   // as many as could run all the time; 0: no limit
  std::string group;  // whose limit it is: "/job/step", as the process sees it
};

struct Facts {
  int rank = 0;
  int node = 0;  // the least rank of those that share memory with it
  std::string host;
  std::string version, build;  // of the tool
  std::string mpi, threads;    // "Open MPI v4.1.4", "MPI_THREAD_MULTIPLE"
  std::vector<PreloadFile> preloads;
  PolicyFile policy;
  std::map<std::string, std::string> variables;  // GRADWIRE_*, OMP_NUM_THREADS
  std::vector<std::string> environment_errors;   // environment_problems()
  std::vector<std::string> unwritable;           // places that variables name, and why

  std::vector<int> cores;  // of the host
  std::vector<int> mask;   // those that this process may use
  CpuLimit cpu;            // the least on the way up from its control group
  std::vector<std::vector<int>> numa_nodes;
  std::string huge_pages;  // "always", "madvise", "never"; empty: not known
  std::uint64_t memory = 0, memory_available = 0;
  std::uint64_t shm = 0, shm_free = 0;          // /dev/shm
  std::uint64_t tcp_send = 0, tcp_receive = 0;  // largest buffers of a connection; 0: not known
  std::vector<Interface> interfaces;            // that are up, without the loopback and those of containers
  double clock_offset = 0, clock_error = 0;     // seconds, against rank 0's

  std::vector<std::string> errors;  // what could not be looked at
};

/// What the tool that became this program told it.
struct Told {
  std::string build;
  std::vector<PreloadFile> preloads;  // without fingerprints
};

/// Never throws; what fails is in `errors`. `root` is where proc/, sys/ and dev/ lie: "/".
[[nodiscard]] Facts read_facts(const Told& told, const std::filesystem::path& root);

/// Empty where it cannot be read: files of /proc and /sys differ between kernels and containers.
[[nodiscard]] std::string text_of(const std::filesystem::path& file);
/// "0-3,8": 0 1 2 3 8. As far as it can be read.
[[nodiscard]] std::vector<int> parse_cpu_list(std::string_view text);
[[nodiscard]] std::string format_cpu_list(const std::vector<int>& cores);
/// "always [madvise] never": madvise.
[[nodiscard]] std::string parse_choice(std::string_view text);
/// Of "NAME:   123 kB" in /proc/meminfo, in bytes; 0 where it is not there.
[[nodiscard]] std::uint64_t parse_memory(std::string_view text, std::string_view name);
/// What follows "NAME:" and blanks on a line of its own, as in /proc/self/status.
[[nodiscard]] std::string parse_field(std::string_view text, std::string_view name);
/// The third number of net.ipv4.tcp_rmem or tcp_wmem.
[[nodiscard]] std::uint64_t parse_largest_buffer(std::string_view text);

/// What cpu.max of a control group says, in cores: of "150000 100000" 1.5, of "max 100000" 0.
[[nodiscard]] double parse_cpu_max(std::string_view text);
[[nodiscard]] CpuLimit read_cpu_limit(const std::filesystem::path& root);

/// As JSON, for the way to rank 0 and for --json. Ranks may be of different versions: what is missing keeps its
/// default.
[[nodiscard]] std::string to_json(const Facts& facts);
[[nodiscard]] Facts facts_from_json(const std::string& text);

}  // namespace gradwire::doctor

// The hosts that the arguments of an mpirun name, and the same command for the hosts that are left.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/preload.hpp"

namespace gradwire::cli {

/// Whether a launcher that is given this name starts ranks on the host of this process.
[[nodiscard]] bool is_this_host(const std::string& name);

class NamedHosts {
 public:
  struct Host {
    std::string name;          // as in the command, also "user@node1"
    std::optional<int> slots;  // sum over all places where it stands; nothing: the launcher counts its cores
  };

  /// Reads the hosts of --host and --hostfile, or of other names of these options. There are none where the command
  /// names none, where ":" separates programs with hosts of their own, or where a host is written in an unknown way.
  NamedHosts(const std::vector<std::string>& command, std::size_t launcher, Library library);

  [[nodiscard]] const std::vector<Host>& hosts() const noexcept { return hosts_; }
  /// Whether a file names them.
  [[nodiscard]] bool in_file() const noexcept { return file_.has_value(); }
  /// The words, to be followed by the name of a host and a command, by which the launcher reaches a host: its agent, or
  /// ssh. Neither asks for a password. `variable`: the value of the environment variable that names an agent, or empty.
  [[nodiscard]] std::vector<std::string> agent(const std::string& variable) const;
  /// The name of that environment variable.
  [[nodiscard]] const char* agent_variable() const noexcept;

  struct Left {
    std::vector<std::string> command;
    int ranks_before = 0;  // the number of -np; 0: it is not there
    int ranks = 0;         // fewer if fewer slots are left, provided that the slots of all hosts sufficed
  };
  /// The command without these hosts. A host file is copied without them to `copy`; Error(invalid_argument), which
  /// names `copy`, where it cannot be written.
  [[nodiscard]] Left without(const std::set<std::string>& gone, const std::filesystem::path& copy) const;

 private:
  void add_list(std::size_t value);
  void add_file(std::size_t value);
  void add(const std::string& name, std::optional<int> slots);
  [[nodiscard]] std::string list_without(const std::set<std::string>& gone) const;
  void write_copy(const std::set<std::string>& gone, const std::filesystem::path& copy) const;
  [[nodiscard]] int slots_without(const std::set<std::string>& gone) const;

  std::vector<std::string> command_;
  std::size_t begin_ = 0;  // where the launcher's own arguments begin
  std::size_t end_ = 0;
  Library library_;
  std::vector<Host> hosts_;
  std::optional<std::size_t> list_;   // index of the list of hosts
  std::optional<std::size_t> file_;   // index of the host file's name
  std::optional<std::size_t> ranks_;  // index of the number of ranks
  std::vector<std::string> lines_;    // lines of the host file
};

}  // namespace gradwire::cli

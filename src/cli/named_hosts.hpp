// The hosts that the arguments of an mpirun name, and the same command for those of them that are left.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/preload.hpp"

namespace gradwire::cli {

class NamedHosts {
 public:
  struct Host {
    std::string name;          // as the command has it, "user@node1" too
    std::optional<int> slots;  // of all places where it stands; nothing: the launcher counts its cores
  };

  /// Those of --host and --hostfile, by whichever of their names. None where the command names none, where ":" parts
  /// programs with hosts of their own, or where a host is written in a way that is not understood.
  NamedHosts(const std::vector<std::string>& command, std::size_t launcher, Library library);

  [[nodiscard]] const std::vector<Host>& hosts() const noexcept { return hosts_; }
  /// Whether a file names them.
  [[nodiscard]] bool in_file() const noexcept { return file_.has_value(); }
  /// The words before the name of a host and a command by which the launcher reaches it: its agent, else ssh. Neither
  /// asks for a password. `variable`: that of the environment in which the launcher is told of an agent, or empty.
  [[nodiscard]] std::vector<std::string> agent(const std::string& variable) const;
  /// Its name.
  [[nodiscard]] const char* agent_variable() const noexcept;

  struct Left {
    std::vector<std::string> command;
    int ranks_before = 0;  // of -np; 0: it is not there
    int ranks = 0;         // fewer where the slots that are left are; only if those of all hosts sufficed
  };
  /// Without these hosts. A host file is copied without them to `copy`. Error(invalid_argument) that names this where
  /// it cannot be written.
  [[nodiscard]] Left without(const std::set<std::string>& gone, const std::filesystem::path& copy) const;

 private:
  void add_list(std::size_t value);
  void add_file(std::size_t value);
  void add(const std::string& name, std::optional<int> slots);
  [[nodiscard]] std::string list_without(const std::set<std::string>& gone) const;
  [[nodiscard]] int slots_without(const std::set<std::string>& gone) const;

  std::vector<std::string> command_;
  std::size_t begin_ = 0;  // of the launcher's own arguments
  std::size_t end_ = 0;
  Library library_;
  std::vector<Host> hosts_;
  std::optional<std::size_t> list_;   // index of its value
  std::optional<std::size_t> file_;   // likewise
  std::optional<std::size_t> ranks_;  // likewise
  std::vector<std::string> lines_;    // of the file
};

}  // namespace gradwire::cli

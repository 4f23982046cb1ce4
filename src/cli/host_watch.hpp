// Finds which hosts of a launcher still answer, for gradwire run --restarts.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/named_hosts.hpp"
#include "cli/temporary.hpp"

namespace gradwire::cli {

/// Leaves out hosts that answered when this object was made and no longer do. A host that never answered, for example
/// because hosts are not reached by ssh, stays, and so does this host. Asking takes 10 s at most.
class HostWatch {
 public:
  /// Asks and leaves out nothing without mpirun's index and its library, and where it names fewer than two hosts.
  HostWatch(const std::vector<std::string>& command, std::optional<std::size_t> launcher,
            std::optional<Library> library);
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  /// The command for the hosts that answered the last time.
  [[nodiscard]] const std::vector<std::string>& command() const noexcept { return command_; }
  /// Asks again. Returns a text about the hosts that the next start lacks, ", on 1 of 2 hosts ...", or nothing.
  [[nodiscard]] std::string look();

 private:
  [[nodiscard]] std::vector<std::string> answering(const std::vector<std::string>& names) const;
  [[nodiscard]] std::filesystem::path copy();

  const std::vector<std::string> all_hosts_;  // the command as it was given
  std::vector<std::string> command_;
  std::optional<NamedHosts> named_;
  std::vector<std::string> agent_;
  std::vector<std::string> watched_;
  std::unique_ptr<TemporaryFolder> folder_;  // of a copy of the host file; made when it is needed first
};

}  // namespace gradwire::cli

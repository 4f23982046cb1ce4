// Which hosts of a launcher still answer, for gradwire run --restarts.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/named_hosts.hpp"
#include "cli/temporary.hpp"

namespace gradwire::cli {

/// Hosts that answered when this was made and no longer do are left out. Of one that never did, such as where ssh is
/// not how hosts are reached, nothing is known: it stays, and so does this host. Asking takes 10 s at most.
class HostWatch {
 public:
  /// Without mpirun's index and its library, and where it names fewer than two hosts, nothing is asked or left out.
  HostWatch(const std::vector<std::string>& command, std::optional<std::size_t> launcher,
            std::optional<Library> library);
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  /// For the hosts that answered the last time.
  [[nodiscard]] const std::vector<std::string>& command() const noexcept { return command_; }
  /// Asks again. Returns what the next start has less, for a line about it: ", on 1 of 2 hosts ...", or nothing.
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

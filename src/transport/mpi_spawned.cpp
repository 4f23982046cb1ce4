#include "transport/mpi_spawned.hpp"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>

#include "base/text.hpp"
#include "base/world_name.hpp"
#include "transport/mpi_environment.hpp"

namespace gradwire::transport {
namespace {

// A name for the world: the launcher's, which all its ranks share, or else one of this process alone.
std::string new_name() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read only, and a variable of MPI's, not of ours
  if (const char* given = std::getenv("PMIX_NAMESPACE"); given != nullptr && *given != '\0') {
    std::string name = "spawned-" + std::string(given);
    std::ranges::replace_if(
        name, [](char c) { return !text::is_plain(c) || c == '.' || c == '_'; }, '-');
    return name;
  }
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return "spawned-" + std::string(host.data()) + "-" + std::to_string(::getpid()) + "-" +
         std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

}  // namespace

void name_spawned_world() noexcept {
  try {
    MPI_Comm parent = MPI_COMM_NULL;
    if (mpi_is_up() && world_name().empty() && MPI_Comm_get_parent(&parent) == MPI_SUCCESS && parent != MPI_COMM_NULL) {
      name_world(new_name());
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): without memory its files have the names of the first world's
  }
}

}  // namespace gradwire::transport

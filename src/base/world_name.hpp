// What tells the files of one MPI world from those of another one of the same job: ranks of worlds that were spawned
// (MPI_Comm_spawn) begin at 0 again.
#pragma once

#include <string>

namespace gradwire {

/// Names this process's world, before its first file is written. The first name stays.
void name_world(const std::string& name);
/// Empty in the world that the job began with.
[[nodiscard]] std::string world_name();

/// "mpi" as it is, or "mpi-NAME" in a world that has one.
[[nodiscard]] std::string with_world_name(const std::string& text);
/// Likewise of a file, in front of its suffix: "calls-NAME.json".
[[nodiscard]] std::string file_with_world_name(const std::string& file);

}  // namespace gradwire

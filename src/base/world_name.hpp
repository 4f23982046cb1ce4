// A name that tells the files of one MPI world from those of another world of the same job: ranks of worlds that were
// spawned (MPI_Comm_spawn) begin at 0 again.
#pragma once

#include <string>

namespace gradwire {

/// Names this process's world, before its first file is written. The first name stays.
void name_world(const std::string& name);
/// The world's name; empty in the world with which the job began.
[[nodiscard]] std::string world_name();

/// The text, such as "mpi", or with the world's name, "mpi-NAME", if it has one.
[[nodiscard]] std::string with_world_name(const std::string& text);
/// The same for a file, with the name in front of its suffix: "calls-NAME.json".
[[nodiscard]] std::string file_with_world_name(const std::string& file);

}  // namespace gradwire

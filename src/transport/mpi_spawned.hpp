// Worlds that another one has spawned (MPI_Comm_spawn).
#pragma once

namespace gradwire::transport {

/// Names the world of this process (base/world_name.hpp) if it was spawned. To be called once MPI is up; later calls do
/// nothing.
void name_spawned_world() noexcept;

}  // namespace gradwire::transport

// Fortran's MPI_IN_PLACE and MPI_BOTTOM under Open MPI: the addresses of common blocks.
#pragma once

namespace gradwire::mpi_preload {

/// A buffer that Fortran gave, with MPI_IN_PLACE and MPI_BOTTOM as C writes them. Each module that is opened RTLD_LOCAL
/// may have a common block of its own, so this looks into every object that the process has loaded, anew once one was
/// loaded since the last look. Takes a lock: for calls that are not passed at once.
[[nodiscard]] void* c_buffer(void* buffer);

}  // namespace gradwire::mpi_preload

// Fortran's MPI_IN_PLACE and MPI_BOTTOM under Open MPI: the addresses of common blocks.
#pragma once

namespace gradwire::mpi_preload {

/// A buffer from Fortran, with MPI_IN_PLACE and MPI_BOTTOM as in C. Each module that is opened RTLD_LOCAL may have a
/// common block of its own, so this searches every object that the process has loaded, and again after each load. It
/// takes a lock, so it is for calls that are not passed at once.
[[nodiscard]] void* c_buffer(void* buffer);

}  // namespace gradwire::mpi_preload

// Keeps errors of the drop-in's own calls on a job's communicator from the job's error handler, which may jump out of
// them.
#pragma once

#include <mpi.h>

#include "transport/mpi_faults.hpp"

namespace gradwire::mpi_preload {

/// As long as it lives, errors on `comm` return, if MPI goes on when ranks end. Otherwise it changes nothing.
class QuietErrors {
 public:
  explicit QuietErrors(MPI_Comm comm) noexcept : comm_(comm) {
    quiet_ = transport::tolerates_faults() && PMPI_Comm_get_errhandler(comm_, &before_) == MPI_SUCCESS;
    if (quiet_) {
      PMPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    }
  }
  ~QuietErrors() {
    if (quiet_) {
      PMPI_Comm_set_errhandler(comm_, before_);
      PMPI_Errhandler_free(&before_);
    }
  }
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;

 private:
  MPI_Comm comm_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
  bool quiet_ = false;
};

}  // namespace gradwire::mpi_preload

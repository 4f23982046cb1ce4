// Whether MPI takes device memory, and the transports that users make.
#include <mpi.h>
#if defined(GRADWIRE_HAVE_MPI_QUERY_CUDA)
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif

#include <string>

#include "base/timeout.hpp"
#include "gradwire/mpi_transport.hpp"
#include "transport/mpi_check_in.hpp"
#include "transport/mpi_device.hpp"
#include "transport/mpi_environment.hpp"
#include "transport/mpi_transport.hpp"

namespace gradwire::transport {

bool mpi_supports_device_memory() noexcept {
#if defined(GRADWIRE_HAVE_MPI_QUERY_CUDA)
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

bool all_support_device_memory(MPI_Comm comm, bool mine, std::chrono::milliseconds timeout) {
  return check_in(comm, timeout, "making a transport", mine);
}

}  // namespace gradwire::transport

namespace gradwire::mpi {

std::shared_ptr<Transport> make_transport(MPI_Comm comm, std::chrono::milliseconds timeout) {
  transport::check_communicator(comm);
  timeout = checked_timeout(timeout, "gradwire::mpi::make_transport");
  transport::MpiOptions options{.timeout = timeout};
  if (transport::all_support_device_memory(comm, transport::mpi_supports_device_memory(), timeout)) {
    options.device_memory = true;
    options.split_bytes = std::uint64_t{1} << 30;
  }
  return transport::make_mpi(comm, options);
}

}  // namespace gradwire::mpi

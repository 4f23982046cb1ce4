// Options of the MPI transport, of which most are for tests. Users call gradwire::mpi::make_transport.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gradwire/transport.hpp"
#include "transport/backoff.hpp"

namespace gradwire::transport {

struct MpiOptions {
  // Most bytes of an MPI message; 2048..2^31-1, the same on every rank. Below 64 KiB Open MPI's TCP sends at once;
  // above, its rendezvous by PUT leaves a 1 Gbit/s link idle for a quarter of the time.
  std::uint64_t split_bytes = 60000;
  // Messages may lie in a GPU's memory; the same on every rank. Then parts are as long as MPI allows, since each costs
  // a copy or a registration.
  bool device_memory = false;
  int tag_upper_bound = 0;                            // replaces MPI_TAG_UB; 0: ask MPI
  bool ignore_broken_pipes = true;                    // see mpi_environment.hpp
  std::chrono::microseconds yield = Backoff::kYield;  // how long a wait polls before it sleeps between two polls
  // Ranks may end, and the others learn of that elsewhere. So the transport makes no call that an ended rank would have
  // to complete, and sends no notice on an abort.
  bool some_may_end = false;
  // In that case the transport owns `comm` and this communicator, and gets the node of each rank. It asks MPI for no
  // further communicator, since such a call, left unfinished by a rank's end, may block all later ones.
  MPI_Comm notices = MPI_COMM_NULL;
  std::vector<std::uint32_t> nodes = {};
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};  // for each wait while the transport is made
  // Called, again and again, when nothing has arrived for `silence` while messages of these ranks are awaited.
  std::function<void(const std::vector<int>& awaited)> on_silence = {};
  std::chrono::milliseconds silence{std::chrono::minutes(1)};
};

[[nodiscard]] std::shared_ptr<Transport> make_mpi(MPI_Comm comm, const MpiOptions& options);

// These two are for transports that make_mpi made, where MPI goes on when a rank ends (mpi_faults.hpp).
/// Whether a rank of the transport has ended or it was revoked, as far as this rank was told.
[[nodiscard]] bool is_faulty(const Transport& transport) noexcept;
/// Ends all use of the transport on every rank by an Error. Not collective; any thread that may call MPI.
void revoke(Transport& transport) noexcept;

}  // namespace gradwire::transport

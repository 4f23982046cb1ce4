// Knobs of the MPI transport that only tests turn. Users call gradwire::mpi::make_transport.
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
  // MPI messages are no longer; 2048..2^31-1, the same on every rank. Below 64 KiB Open MPI's TCP sends at once; above,
  // its rendezvous by PUT leaves a 1 Gbit/s link idle for a quarter of the time.
  std::uint64_t split_bytes = 60000;
  // Messages may lie in a GPU's memory; the same on every rank. Then parts are as long as MPI allows, since each costs
  // a copy or a registration.
  bool device_memory = false;
  int tag_upper_bound = 0;                            // take MPI_TAG_UB to be this; 0: ask MPI
  bool ignore_broken_pipes = true;                    // see mpi_environment.hpp
  std::chrono::microseconds yield = Backoff::kYield;  // how long a wait polls before it sleeps between two looks
  // Ranks may end, and others know of it elsewhere: no call that only they could end, and no word to them on an abort.
  bool some_may_end = false;
  // Then making it asks MPI for no further communicator, since a call of that kind that a rank's end leaves unfinished
  // may hold up all later ones: `comm` and this one are its own, and this is the node of each rank.
  MPI_Comm notices = MPI_COMM_NULL;
  std::vector<std::uint32_t> nodes = {};
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};  // of what making the transport waits for
  // Told, again and again, when nothing has come for `silence` although messages of these ranks are awaited.
  std::function<void(const std::vector<int>& awaited)> on_silence = {};
  std::chrono::milliseconds silence{std::chrono::minutes(1)};
};

[[nodiscard]] std::shared_ptr<Transport> make_mpi(MPI_Comm comm, const MpiOptions& options);

// Of a transport that make_mpi made, where MPI goes on when a rank ends (mpi_faults.hpp).
/// Whether one of its ranks has ended or it was revoked, as far as this rank was told.
[[nodiscard]] bool is_faulty(const Transport& transport) noexcept;
/// Ends what any rank does with it by an Error. Not collective; any thread that may call MPI.
void revoke(Transport& transport) noexcept;

}  // namespace gradwire::transport

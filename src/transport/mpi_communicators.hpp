// The private communicators that carry messages, and where a gradwire tag goes in them.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "gradwire/transport.hpp"

namespace gradwire::transport {

/// Tags below 2^28 need no mapping where MPI_TAG_UB reaches that far (Open MPI, MPICH). Where it does not, up to 16
/// duplicates share the tags out, which is exact down to MPI_TAG_UB = 2^24 - 1 (UCX). Below that tags are folded: then
/// two messages between the same ranks may be confused only if they are under way together and their tags differ by
/// a multiple of 16 (MPI_TAG_UB + 1). Order within a tag always holds.
class MpiCommunicators {
 public:
  /// Collective. `tag_upper_bound` 0: asks MPI.
  MpiCommunicators(MPI_Comm comm, int tag_upper_bound);

  struct Address {
    MPI_Comm comm;
    int tag;
  };
  [[nodiscard]] Address address(Tag tag) const noexcept {
    return {comms_[tag / span_ % comms_.size()], static_cast<int>(tag % span_)};
  }
  [[nodiscard]] MPI_Comm first() const noexcept { return comms_.front(); }

  /// Collective.
  void free() noexcept;

 private:
  Tag span_ = kTagLimit;  // tags in one communicator
  std::vector<MPI_Comm> comms_;
};

}  // namespace gradwire::transport

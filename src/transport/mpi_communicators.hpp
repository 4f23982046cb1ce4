// The private communicators that carry messages, and the communicator and MPI tag of each gradwire tag.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/transport.hpp"
#include "transport/mpi_tags.hpp"

namespace gradwire::transport {

/// A message is plain or bulk; the two kinds under one tag never match. Together they need 2^29 MPI tags, which one
/// communicator has in Open MPI. Where MPI_TAG_UB is less, the tags are distributed over up to 32 duplicates, which is
/// enough down to MPI_TAG_UB = 2^24 - 1 (UCX). Below that tags are folded: then two messages of one kind between the
/// same ranks may be confused, but only if they are under way together and their tags differ by a multiple of 16
/// (MPI_TAG_UB + 1).
class MpiCommunicators {
 public:
  /// Collective. `tag_upper_bound` 0: asks MPI. `own`: uses `comm` itself where one communicator is enough.
  /// Error(timeout) where a rank does not get through within `timeout`.
  MpiCommunicators(MPI_Comm comm, int tag_upper_bound, std::chrono::milliseconds timeout, bool own = false);

  /// Uses one slot of a communicator that others share; the communicator is not freed here. Not collective.
  MpiCommunicators(MPI_Comm comm, const TagPlan& tags, unsigned slot) : tags_(tags), slot_(slot), comms_{comm} {}

  struct Address {
    MPI_Comm comm;
    int tag;
  };
  [[nodiscard]] Address plain(Tag tag) const noexcept {
    return slot_ > 0 ? Address{comms_.front(), tags_.plain(slot_, tag)} : address(tag);
  }
  [[nodiscard]] Address bulk(Tag tag) const noexcept {
    if (slot_ > 0) {
      return {comms_.front(), tags_.bulk(slot_, tag)};
    }
    return folds_ ? address(tag, comms_.size() / 2) : address(tag + kTagLimit);
  }
  [[nodiscard]] MPI_Comm first() const noexcept { return comms_.front(); }
  /// Whether one communicator carries all messages and has a tag to spare.
  [[nodiscard]] bool has_spare_tag() const noexcept { return has_spare_tag_; }

  /// Collective.
  void free() noexcept;
  /// Not collective.
  void revoke() noexcept;

 private:
  // If tags are folded, each kind has half of the communicators.
  [[nodiscard]] Address address(Tag number, std::size_t first = 0) const noexcept {
    const std::size_t per_kind = folds_ ? comms_.size() / 2 : comms_.size();
    return {comms_[first + number / span_ % per_kind], static_cast<int>(number % span_)};
  }

  TagPlan tags_{32767};
  unsigned slot_ = 0;  // 0: the communicators are this transport's own
  Tag span_ = 1;       // tags in one communicator
  bool has_spare_tag_ = false;
  bool folds_ = false;  // there are fewer tags than all messages need
  std::vector<MPI_Comm> comms_;
};

/// MPI_TAG_UB, read from MPI_COMM_WORLD, which has MPI's own attributes: Open MPI's other communicators have only
/// copies of them.
[[nodiscard]] int ask_tag_upper_bound();

/// The name of our private communicators, as MPI_Comm_get_name returns it. A drop-in passes calls on communicators of
/// this name uncounted, and learns by it that the program itself uses the library.
inline constexpr const char* kPrivateName = "gradwire private";

/// A private duplicate whose errors return, made without a blocking call. Collective; Error(timeout) as above. `what`
/// is for messages.
[[nodiscard]] MPI_Comm duplicate(MPI_Comm comm, std::chrono::milliseconds timeout, const std::string& what);

/// The node of each rank of `comm`, named by its lowest rank. Ranks share a node where MPI says that they can share
/// memory. Collective; Error(timeout) as above.
[[nodiscard]] std::vector<std::uint32_t> find_nodes(MPI_Comm comm, int rank, int world_size,
                                                    std::chrono::milliseconds timeout);

}  // namespace gradwire::transport

// How the tags of one private communicator are distributed over the communicators of a job: each has a slot. This file
// calls no MPI function.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>

#include "base/mutex.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::transport {

/// MPI tags by slot. A tag is one bit for the kind of the message (plain or bulk, see mpi_messages.cpp), then the slot,
/// then the low bits of the collective's own tag: its hop, its lane, and as many bits of its call's number as fit. They
/// need not be all bits: calls of one communicator come one after another, MPI keeps the order of messages with equal
/// tags, and no more than most_lanes() lanes may be under way at once.
class TagPlan {
 public:
  static constexpr unsigned kMostSlots = 383;

  /// `tag_upper_bound`: the value of MPI_TAG_UB, 32767 or more.
  explicit TagPlan(int tag_upper_bound) noexcept;

  /// Number of slots. They are numbered from 1; slot 0 is for the notices (mpi_world.hpp).
  [[nodiscard]] unsigned slots() const noexcept { return slots_; }
  [[nodiscard]] int plain(unsigned slot, Tag tag) const noexcept { return at(2 * slot, tag); }
  [[nodiscard]] int bulk(unsigned slot, Tag tag) const noexcept { return at(2 * slot + 1, tag); }
  [[nodiscard]] static int notice() noexcept { return 0; }
  /// Number of lanes of one communicator whose messages never share a tag.
  [[nodiscard]] std::uint64_t most_lanes() const noexcept;

 private:
  [[nodiscard]] int at(unsigned place, Tag tag) const noexcept {
    return static_cast<int>(place << bits_ | (tag & ((Tag{1} << bits_) - 1)));
  }

  unsigned bits_ = 0;  // number of bits of the collective's tag that fit
  unsigned slots_ = 0;
};

/// The slots of this process, and which of them communicators of the job have. Ranks agree on a slot in one all-reduce:
/// each offers its free slots, and the lowest slot that all offer is taken. Offers that are under way at the same time
/// on one rank have no slot in common. So no two communicators that share a rank get the same slot, in whichever order
/// ranks learn the results. Any thread may use it.
class SlotTable {
 public:
  /// A set of slots as it travels: bit s of the words is slot s.
  static constexpr std::size_t kWords = (TagPlan::kMostSlots + 64) / 64;
  using Set = std::array<std::uint64_t, kWords>;

  explicit SlotTable(unsigned slots);

  struct Offer {
    Set free{};
    std::size_t place = 0;  // among the offers under way
  };
  /// The slots to offer for one more communicator; empty where none is free, and where too many offers are under way.
  [[nodiscard]] Offer offer();
  /// Ends an offer. `common`: the slots that all ranks offered, the same on all of them. Returns the communicator's
  /// slot; none where they had no slot in common.
  [[nodiscard]] std::optional<unsigned> settle(const Offer& offer, const Set& common);
  /// Returns a slot, after the rank has freed the communicator and all its messages were received.
  void release(unsigned slot);
  /// Takes a slot for a communicator for which all ranks agree without an offer; before any offer.
  [[nodiscard]] unsigned take_first();

  [[nodiscard]] std::size_t taken() const;

 private:
  // The first offer under way may have nearly all slots. The next ones, of threads that use new communicators at the
  // same moment, have few each.
  static constexpr std::size_t kPlaces = 5;
  static constexpr unsigned kReserved = 12;  // slots of each place except the first
  [[nodiscard]] Set slots_of(std::size_t place) const REQUIRES(mutex_);

  unsigned slots_;
  mutable Mutex mutex_;
  std::bitset<TagPlan::kMostSlots + 1> free_ GUARDED_BY(mutex_);
  std::array<bool, kPlaces> under_way_ GUARDED_BY(mutex_){};
};

}  // namespace gradwire::transport

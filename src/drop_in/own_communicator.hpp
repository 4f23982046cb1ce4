// gradwire has a communicator of its own with the ranks of one of the job's. Messages travel over it, so that the job's
// later calls on its own communicator need not wait for them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire::drop_in {

class OwnCommunicator {
 public:
  /// A rank tells the others this before the communicator is made. Ranks exchange it as bytes.
  struct Offer {
    std::uint32_t able = 0;                // this rank has the memory for it
    std::uint32_t splits = 0;              // the library can split the job's communicator
    std::array<std::byte, 128> name = {};  // if it cannot: the name by which ranks find each other; rank 0's counts
  };

  OwnCommunicator() = default;
  OwnCommunicator(const OwnCommunicator&) = delete;
  OwnCommunicator& operator=(const OwnCommunicator&) = delete;
  virtual ~OwnCommunicator() = default;

  /// Returns whether the ranks have decided whether to use it.
  [[nodiscard]] virtual bool settled() const noexcept = 0;
  [[nodiscard]] virtual Offer offer() noexcept = 0;
  /// Makes it if all ranks can make it in the same way, and returns whether it is there on this rank. Every rank calls
  /// it with the offers of all ranks, by rank. It blocks, allocates memory, and must be called neither during a capture
  /// nor in a group of the library.
  [[nodiscard]] virtual bool make(std::span<const Offer> offers) noexcept = 0;
  /// If `all`, later messages travel over it; else some rank does not have it, and it is freed.
  virtual void settle(bool all) noexcept = 0;

  /// Makes a communicator of the ranks of each node from this one, in which this rank has the place `place`, and
  /// returns whether it is there on this rank. Every rank calls it, once there is a communicator; as make() otherwise.
  [[nodiscard]] virtual bool split(std::uint32_t node, int place) noexcept = 0;
  /// If `all`, the library's sums inside nodes use it; else it is freed.
  virtual void settle_split(bool all) noexcept = 0;
};

}  // namespace gradwire::drop_in

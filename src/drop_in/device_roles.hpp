// Which all-reduces of one communicator carry gradients, agreed by its ranks: each rank votes by the addresses that it
// sees, and what all ranks agree on counts. The votes are words whose largest values the ranks exchange. Everything but
// the votes follows from what all ranks know alike, so all ranks give the same roles to the same calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "choice/gradient_places.hpp"
#include "drop_in/step_tracker.hpp"

namespace gradwire::drop_in {

class DeviceRoles {
 public:
  enum class Role : std::uint8_t {
    open,      // not known yet
    gradient,  // a gradient's on every rank
    none,      // some rank saw its address change, or come twice in a step
  };
  /// Words of an exchange.
  static constexpr std::size_t kWords = 64;

  /// Notes the next all-reduce that could be compressed and returns its role. `others` counts the other collectives on
  /// the communicator so far.
  [[nodiscard]] Role next(const Signature& call, const void* buffer, std::uint64_t others);
  /// Whether there is something to vote on: the same on all ranks.
  [[nodiscard]] bool asks() const noexcept;
  /// Writes this rank's votes for an exchange of the largest values. One exchange at a time.
  void vote(std::span<std::uint32_t, kWords> words);
  /// Takes the largest values of all ranks' votes. All ranks have made the same calls since vote().
  void agreed(std::span<const std::uint32_t, kWords> words);
  /// The role of all calls of a kind, wherever they stand in the step; open if they differ.
  [[nodiscard]] Role role_of(const Signature& kind) const;
  /// How often roles were forgotten since the step changed.
  [[nodiscard]] std::uint64_t breaks() const noexcept { return breaks_; }

 private:
  static constexpr std::size_t kPlacesAtOnce = kWords - 2;
  static constexpr std::size_t kMostCalls = 2 * StepTracker::kLongestPeriod;

  [[nodiscard]] std::vector<choice::PlacedCall> latest(std::size_t calls) const;
  void vote_on_places(std::span<std::uint32_t> votes, std::size_t period, std::size_t first) const;

  StepTracker tracker_{false};  // learns after how many calls their kinds repeat, and notes if they no longer do
  std::deque<choice::PlacedCall> calls_;  // the latest ones
  std::uint64_t number_ = 0;              // of the next call; its place is number_ % period_
  std::uint64_t others_ = 0;              // as of the latest call
  std::size_t period_ = 0;                // calls in a step, once agreed
  std::vector<Role> roles_;               // by place
  std::vector<Signature> kinds_;          // by place, as of the latest step
  std::size_t known_ = 0;                 // places that were voted on
  std::uint64_t breaks_ = 0;
  bool voted_ = false;  // a vote is under way
};

}  // namespace gradwire::drop_in

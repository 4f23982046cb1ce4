// Decides which all-reduces of one communicator carry gradients, as its ranks agree: each rank votes by the addresses
// that it sees, and a call is a gradient's if no rank objects. Votes are words, of which the ranks exchange the largest
// values. All else that decides is known alike on all ranks, so they give the same roles to the same calls. Ranks vote
// again now and then: a gradient's place whose rhythm broke since loses its role, until the step changes.
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
  /// Calls after which the ranks vote again on all gradients, or four steps, if these are longer.
  static constexpr std::size_t kCallsOfARound = 1024;

  /// Notes the next all-reduce that could be compressed and returns its role. `others` counts the other collectives on
  /// the communicator so far. `apart`: this process has made collectives on other communicators since the call before.
  [[nodiscard]] Role next(const Signature& call, const void* buffer, std::uint64_t others, bool apart = false);
  /// Returns whether there is something to vote on: the same on all ranks.
  [[nodiscard]] bool asks() const noexcept;
  /// Writes this rank's votes for an exchange of the largest values. There is one exchange at a time.
  void vote(std::span<std::uint32_t, kWords> words);
  /// Takes the largest values of all ranks' votes. All ranks have made the same calls since vote().
  void agreed(std::span<const std::uint32_t, kWords> words);
  /// Returns the role of all calls of a kind, wherever they stand in the step; open if they differ.
  [[nodiscard]] Role role_of(const Signature& kind) const;
  /// Returns how often roles were forgotten since the step changed.
  [[nodiscard]] std::uint64_t breaks() const noexcept { return breaks_; }

 private:
  static constexpr std::size_t kPlacesAtOnce = kWords - 2;
  static constexpr std::size_t kMostCalls = 2 * StepTracker::kLongestPeriod;

  [[nodiscard]] std::vector<choice::PlacedCall> latest(std::size_t calls) const;
  [[nodiscard]] std::size_t calls_of_a_round() const noexcept;
  [[nodiscard]] std::size_t steps_to_look_at() const noexcept;
  void vote_on_places(std::span<std::uint32_t> votes, std::size_t period, std::size_t first, std::size_t steps) const;

  StepTracker tracker_{false};  // learns after how many calls their kinds repeat, and notes if they no longer do
  std::deque<choice::PlacedCall> calls_;  // the latest ones
  std::uint64_t number_ = 0;              // of the next call; its place is number_ % period_
  std::uint64_t others_ = 0;              // as of the latest call
  std::size_t period_ = 0;                // calls in a step, once agreed
  std::vector<Role> roles_;               // by place
  std::vector<Signature> kinds_;          // by place, as of the latest step
  std::size_t next_ = 0;                  // place on which the votes of this round go on
  bool again_ = false;                    // all places were voted on before
  std::uint64_t adopted_ = 0;             // number of the next call when the step was agreed on
  std::uint64_t round_ended_ = 0;         // and when all places had been voted on
  std::uint64_t breaks_ = 0;
  bool voted_ = false;  // a vote is under way
};

}  // namespace gradwire::drop_in

// Chooses between two ways to make a call whose results are equal to the byte, such as messages and one kernel inside a
// node, by the times of the job's own calls. As the results are equal, nothing is copied and no call is made twice: the
// first calls of a kind take turns. The times of a device's calls come late and differ between ranks, so all ranks
// exchange their medians, of which the largest counts, and a choice depends on nothing but the numbers of calls and the
// exchanged medians: the same calls on every rank go the same ways. There are no clocks, devices or messages here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace gradwire::choice {

class EqualWays {
 public:
  static constexpr std::size_t kMostKinds = 96;
  static constexpr std::size_t kWords = 2 * kMostKinds;  // words that ranks exchange
  static constexpr std::uint32_t kNoSample = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint64_t kUntimed = 2;   // first calls by each way, which may load kernels and connect ranks
  static constexpr std::uint64_t kTurns = 16;    // calls that are timed, half of them by each way
  static constexpr std::uint64_t kAgain = 2048;  // calls after which a kind is compared again
  static constexpr double kAdoptBelow = 0.97;    // of the time by the first way: then calls go the second one
  static constexpr unsigned kMostRounds = 8;     // exchanges after which the first way stays

  /// A call that the caller measures.
  struct Timed {
    std::size_t kind = 0;
    bool second = false;
    std::uint64_t comparison = 0;
  };
  struct Turn {
    bool second = false;  // the call goes the second way
    std::optional<Timed> timed = {};
  };
  /// Returns how the next call of a kind is made. The caller gives kinds of calls numbers below kMostKinds, the same on
  /// every rank. The answer is the same on all ranks if they make the same calls and heard() the same words before
  /// them.
  [[nodiscard]] Turn next(std::size_t kind);
  /// Returns whether calls of a kind go the second way, as was last decided: for calls that do not count.
  [[nodiscard]] bool second(std::size_t kind) const noexcept;
  /// Takes the time of a call on this rank, at any time later and in any order. Unknown times are left out.
  void timed(const Timed& call, double seconds);

  /// Returns whether there is something to exchange: the same on all ranks.
  [[nodiscard]] bool asks() const noexcept;
  /// Writes the words of which all ranks exchange the largest. Every rank calls it at the same call.
  void say(std::span<std::uint32_t> words);
  /// Takes the largest words of all ranks. Every rank calls it at the same call, with what was said last; nothing
  /// happens if nothing was said since.
  void heard(std::span<const std::uint32_t> words);

 private:
  struct Kind {
    std::uint64_t calls = 0;       // since the comparison began
    std::uint64_t comparison = 0;  // its number
    bool second = false;
    bool decided = false;
    bool said = false;
    unsigned rounds = 0;                              // exchanges without the times of all ranks
    std::array<std::vector<double>, 2> seconds = {};  // by way, of this rank
  };

  [[nodiscard]] static bool waits(const Kind& kind) noexcept {
    return !kind.decided && kind.calls >= kUntimed + kTurns;
  }

  static void decide(Kind& kind, bool second);

  std::vector<Kind> kinds_;
};

}  // namespace gradwire::choice

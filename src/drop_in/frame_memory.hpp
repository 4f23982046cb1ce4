// Finds which calls of a communicator have device memory for their messages on every rank. Before the first call of a
// kind each rank plays it without a device, takes the memory that it lacks, and tells the others whether it has it: a
// rank that found out during the call would leave the others waiting for its messages.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "drop_in/device_guess.hpp"
#include "drop_in/step_tracker.hpp"
#include "exchange/stream/stream_backend.hpp"
#include "gradwire/reduction.hpp"
#include "memory/arena.hpp"

namespace gradwire::drop_in {

class FrameMemory {
 public:
  /// The memory of a call depends on these, which are the same on every rank.
  struct Kind {
    Signature call;
    Algorithm algorithm = Algorithm::two_shot;
    std::array<std::uint16_t, 4> codecs{};  // of both hops: values and k
    bool keeps = false;                     // its place in the step keeps residuals
    bool holds_local = false;               // it adds those of ranks' own values
    bool holds_owner = false;               // it adds those of owners' sums
    bool scaled = false;                    // a sum whose ranks have factors
    DeviceMethod method = DeviceMethod::messages;
    friend auto operator<=>(const Kind&, const Kind&) = default;  // NOLINT(modernize-use-nullptr): takes <=> for 0
  };
  /// Calls that run as one, in order.
  using Run = std::vector<Kind>;
  /// Enqueues all that the calls of a run may need, one after the other or together, as the run itself will.
  using Play = std::function<void(exchange::StreamBackend& backend)>;
  /// Tells the ranks whether this one has its memory, and returns whether all have. It blocks until all have told.
  using AllHave = std::function<bool(bool mine)>;

  /// `arena` must outlive it. While no run is under way, the arena must hold the same blocks whenever it is used.
  FrameMemory(memory::Arena& arena, int rank, int world_size) : arena_(arena), rank_(rank), world_(world_size) {}
  FrameMemory(const FrameMemory&) = delete;
  FrameMemory& operator=(const FrameMemory&) = delete;

  /// Returns what the ranks have agreed on for the run, if they have.
  [[nodiscard]] std::optional<bool> known(const Run& run) const;
  /// Takes the memory that this rank lacks for the run, and asks the others. Returns whether every rank has it, which
  /// is known() from then on. The arena's device must be current.
  [[nodiscard]] bool ask(const Run& run, const Play& play, const AllHave& all_have);
  /// Returns the bytes that `play` takes in one piece.
  [[nodiscard]] std::uint64_t bytes_of(const Play& play) const;

 private:
  [[nodiscard]] bool reserve(const Play& play);

  memory::Arena& arena_;
  int rank_;
  int world_;
  std::map<Run, bool> agreed_;
};

}  // namespace gradwire::drop_in

// How many lanes may be under way at once: as many as the link needs to stay full, which is its rate times its delay,
// within a bound of memory. It is a pure state machine: the caller gives the times at which lanes open and close.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "exchange/hop_codecs.hpp"
#include "exchange/schedule.hpp"
#include "gradwire/reduction.hpp"

namespace gradwire::exchange {

/// Lanes that are always allowed: enough for encoding, two hops and decoding to overlap on a link of low latency.
inline constexpr int kLeastLanes = 4;
/// Most lanes at any time: a peer may be so many ahead, and all of them need different tags.
inline constexpr int kMostLanes = 1024;

struct WindowLimits {
  int least_lanes = kLeastLanes;                       // always allowed, at any size
  std::uint64_t memory_bytes = kDefaultInFlightBytes;  // for the frames of all lanes, where there are more
  int most_lanes = kMostLanes;                         // limited by the number of tags of the transport
};

/// The share of a window that one lane takes, in bytes.
struct LaneLoad {
  /// Bytes in the busier direction of its rank. 0: the lane stays within the least lanes, such as a native sum behind
  /// weights, which must come in the same order on every rank.
  std::uint64_t travels = 0;
  std::uint64_t memory = 0;  // all its frames at once
  /// Where the packed frames that one instruction reads are unpacked. One instruction of all lanes runs at a time.
  std::uint64_t rooms = 0;
  std::uint32_t hops = 0;  // number of messages that wait for each other, and so of latencies

  /// The bytes of the lane that are on the link at any one time.
  [[nodiscard]] double a_hop() const noexcept { return static_cast<double>(travels) / (hops > 0 ? hops : 1); }
};

/// `frame_bytes(instruction)` returns the bytes of the slot that an instruction fills; room_bytes(hop, count) those
/// that a frame of `count` elements needs to be unpacked.
template <class FrameBytes, class RoomBytes>
[[nodiscard]] LaneLoad load_of(const Lane& lane, FrameBytes&& frame_bytes, RoomBytes&& room_bytes);

/// Bytes that a rank keeps on a link of that rate and latency: 1.25 times their product, because of fluctuations.
[[nodiscard]] std::uint64_t window_bytes(double bytes_per_second, double latency_seconds);

class Window {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Window(WindowLimits limits) : limits_(limits) {}

  /// Sets other limits; measurements of the link stay.
  void set_limits(WindowLimits limits) noexcept { limits_ = limits; }
  /// Sets the window_bytes() of a known link. 0: the link is not known.
  void set_known(std::uint64_t bytes) noexcept { known_ = static_cast<double>(bytes); }

  /// Whether the next lane may be opened. If not, a call of starved() may follow.
  [[nodiscard]] bool admits(const LaneLoad& load);
  /// Says that the caller has nothing to do and nothing to send: only the window keeps the link from carrying more.
  void starved() noexcept { starved_ = starved_ || refused_ == Refused::by_link; }

  struct Opened {
    Time at;
    double delivered = 0;  // bytes delivered until then
    double open = 0;       // bytes on the link, with this lane
  };
  [[nodiscard]] Opened open(const LaneLoad& load, Time now);
  void close(const LaneLoad& load, const Opened& opened, Time now);

  [[nodiscard]] int lanes() const noexcept { return lanes_; }
  /// Bytes on the link that are allowed beyond the least lanes.
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  [[nodiscard]] std::uint64_t memory() const noexcept { return memory_; }

 private:
  enum class Refused : std::uint8_t { no, by_link, by_memory };
  // Measurements of some periods. A period lasts from one moment without lanes to the next.
  struct Seen {
    double hop_seconds = std::numeric_limits<double>::infinity();  // the shortest
    double product = 0;                                            // rate times delay, the largest
  };
  [[nodiscard]] double hop_seconds() const noexcept;
  [[nodiscard]] double product() const noexcept;
  void learn(const LaneLoad& load, const Opened& opened, Time now);
  void end_period() noexcept;

  WindowLimits limits_;
  double known_ = 0;
  double grown_ = 0;
  int lanes_ = 0;
  double open_ = 0;  // sum of LaneLoad::a_hop
  std::uint64_t memory_ = 0;
  double delivered_ = 0;  // sum of LaneLoad::travels
  Refused refused_ = Refused::no;
  bool starved_ = false;
  bool searching_ = true;       // the window was never larger than what the link takes
  bool counts_ = false;         // the window kept a lane back in this period
  std::uint32_t periods_ = 0;   // in seen_[0]
  std::array<Seen, 2> seen_{};  // now, and before
};

template <class FrameBytes, class RoomBytes>
LaneLoad load_of(const Lane& lane, FrameBytes&& frame_bytes, RoomBytes&& room_bytes) {
  constexpr std::uint64_t kPage = 4096;  // of which buffers are made
  const auto in_pages = [](std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; };
  LaneLoad load;
  std::vector<Hop> hops(lane.slots, Hop::own);  // of the frame in each slot
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  bool native = false;
  std::array<bool, std::size_t{1} << kHopBits> waits{};
  for (const Instruction& instruction : lane.instructions) {
    std::uint64_t rooms = 0;
    if (instruction.opcode == Opcode::reduce || instruction.opcode == Opcode::reduce_encode) {
      for (const Slot input : instruction.inputs) {
        rooms += input == kOwnInput ? 0 : in_pages(room_bytes(hops[input], instruction.chunk.count));
      }
    } else if (instruction.opcode == Opcode::decode) {
      rooms = in_pages(room_bytes(instruction.hop, instruction.chunk.count));
    }
    load.rooms = load.rooms > rooms ? load.rooms : rooms;
    const bool fills = instruction.opcode == Opcode::receive || instruction.opcode == Opcode::encode ||
                       instruction.opcode == Opcode::reduce_encode || instruction.opcode == Opcode::weight ||
                       instruction.opcode == Opcode::native_ask || instruction.opcode == Opcode::native_load;
    if (!fills && instruction.opcode != Opcode::send) {
      continue;
    }
    const std::uint64_t bytes = frame_bytes(instruction);
    native = native || instruction.opcode == Opcode::native_load;
    load.memory += fills ? in_pages(bytes) : 0;
    if (fills) {
      hops[instruction.slot] = instruction.hop;
    }
    sent += instruction.opcode == Opcode::send ? bytes : 0;
    if (instruction.opcode == Opcode::receive) {
      received += bytes;
      waits[static_cast<std::size_t>(instruction.hop)] = instruction.hop != Hop::weight;
    }
  }
  load.travels = sent > received ? sent : received;
  if (native) {
    load.travels = load.travels > 0 ? 0 : load.memory;
    return load;
  }
  for (const bool hop : waits) {
    load.hops += hop ? 1 : 0;
  }
  return load;
}

}  // namespace gradwire::exchange

// Runs schedules without data over links with a rate and a latency, to find how long they take if computing takes no
// time. Time is a number that the simulation advances; there is no clock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <random>
#include <span>
#include <tuple>
#include <vector>

#include "exchange/window.hpp"

namespace gradwire::exchange {

struct SimulatedLink {
  double bytes_per_second;  // of each rank, in each direction
  double latency_seconds;
  double jitter_seconds = 0;  // a message may be this much later, by chance, for example if its rank had no core
  bool hides_queue = false;   // a send ends at once, as if the kernel takes it, however long the link needs
};

class SimulatedLinks {
 public:
  SimulatedLinks(int ranks, SimulatedLink link, WindowLimits limits, std::uint64_t known_window = 0);

  /// Runs one collective on all ranks, in the host executor's order, until all messages have arrived. Windows learn
  /// from it. Returns the seconds that it took. Throws Error(internal) if it cannot end.
  double run(std::span<const Schedule> schedules, const std::function<std::uint64_t(const Instruction&)>& frame_bytes);

  /// Uses other links from now on.
  void change(SimulatedLink link) { link_ = link; }
  /// Returns the bytes that a rank sent in the last collective.
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept { return ranks_[0].sent; }
  /// Returns the most bytes that ever waited for one rank's link, when several ranks sent to it.
  [[nodiscard]] double peak_queue_bytes() const noexcept { return peak_queue_seconds_ * link_.bytes_per_second; }
  [[nodiscard]] std::uint64_t peak_memory() const noexcept { return peak_memory_; }
  [[nodiscard]] const Window& window(int rank) const { return ranks_[static_cast<std::size_t>(rank)].window; }

 private:
  using Key = std::tuple<int, int, std::uint64_t, Hop>;  // from, to, lane, hop
  struct Channel {
    std::uint64_t arrived = 0;
    std::uint64_t awaited = 0;
  };
  struct OpenLane {
    std::uint64_t index;
    Lane lane;
    LaneLoad load;
    std::size_t next = 0;
    std::vector<std::pair<const Instruction*, std::uint64_t>> awaited = {};  // by slot: a receive, and its number
    int sending = 0;
    Window::Opened opened = {};
  };
  struct Rank {
    Window window;
    std::map<std::uint64_t, OpenLane> lanes = {};
    std::uint64_t next_lane = 0;
    double out_free = 0;
    double in_free = 0;
    std::uint64_t sent = 0;
    int sending = 0;
  };
  struct Event {
    enum class Kind : std::uint8_t { leaves, arrives, sent } kind;
    double at;
    std::uint64_t order;  // breaks ties of time
    Key key;
    std::uint64_t bytes;
    bool operator>(const Event& other) const { return std::tie(at, order) > std::tie(other.at, other.order); }
  };

  [[nodiscard]] Window::Time now() const;
  void post(Event::Kind kind, double at, const Key& key, std::uint64_t bytes);
  void advance(int rank, std::uint64_t index);
  void open_lanes(int rank, const Schedule& schedule);
  bool run_next(int rank, OpenLane& lane);
  [[nodiscard]] bool arrived(int rank, OpenLane& lane, Slot slot);
  int take(const Event& event);

  SimulatedLink link_;
  std::vector<Rank> ranks_;
  std::map<Key, Channel> channels_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  const std::function<std::uint64_t(const Instruction&)>* frame_bytes_ = nullptr;
  std::mt19937 random_{1};
  double now_ = 0;
  std::uint64_t order_ = 0;
  std::uint64_t peak_memory_ = 0;
  double peak_queue_seconds_ = 0;
};

}  // namespace gradwire::exchange

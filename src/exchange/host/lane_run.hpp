// Runs one lane: it holds its frame slots, its pending operations and the next instruction.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "exchange/host/host_executor.hpp"
#include "observe/event.hpp"

namespace gradwire::exchange {

class LaneRun {
 public:
  LaneRun(HostExecutor& executor, std::shared_ptr<Execution> execution, std::uint64_t index);

  /// Returns the lane's share of the window while it is open.
  [[nodiscard]] const LaneLoad& load() const noexcept { return load_; }
  void open(Window& window);
  void close(Window& window) const;

  enum class Outcome : std::uint8_t { blocked, posted, computed, finished };
  /// Runs instructions in order until one must wait (blocked), one has computed something, or none is left.
  Outcome run();
  /// Returns whether all instructions have run and all operations are done.
  [[nodiscard]] bool complete();
  [[nodiscard]] const std::shared_ptr<Execution>& execution() const noexcept { return execution_; }
  /// Returns the ranks whose frames of the earliest hop have not arrived; if none is awaited, the ranks that do not
  /// receive this one's.
  [[nodiscard]] std::vector<int> missing() const;
  [[nodiscard]] bool sending() const noexcept;
  void cancel(Transport& transport) noexcept;

 private:
  struct SlotState {
    memory::BufferPool::Buffer buffer;
    std::uint64_t filled = 0;  // bytes of it that this rank wrote: a packed frame may be smaller than its buffer
    Operation* receive = nullptr;
    int from = -1;           // the rank that made the frame
    Hop hop = Hop::own;      // the encoding that it comes from
    std::uint32_t uses = 0;  // instructions and operations that still need the bytes
  };

  [[nodiscard]] bool ready(const Instruction& instruction);
  void execute(const Instruction& instruction);
  void post_receive(const Instruction& instruction);
  void post_send(const Instruction& instruction);
  void encode(const Instruction& instruction);
  void reduce(const Instruction& instruction);
  void decode(const Instruction& instruction);
  void note_stored(std::uint64_t first, std::uint32_t count);
  void copy(const Instruction& instruction);
  void write_weight(const Instruction& instruction);
  void check_early_frames();
  void sum_weights(const Instruction& instruction);
  void ask(const Instruction& instruction);
  // Small numbers that must be equal on all ranks of a call without a plan: its terms, and digits of a hash of its
  // count and dtype.
  using Alike = std::array<std::uint8_t, 5>;
  [[nodiscard]] Alike alike() const;
  // Sums over ranks: the number of ranks that wait; where there are terms, also each number of Alike and its square.
  using Answer = std::array<float, 1 + 2 * std::tuple_size_v<Alike>>;
  [[nodiscard]] Answer answer(const Instruction& instruction) const;
  void native(const Instruction& instruction);
  [[nodiscard]] std::byte* native_values(Slot slot) const;
  void release_uses(const Instruction& instruction);
  void release_slot(Slot slot);
  void harvest();
  void count_sent(int peer, std::uint64_t bytes) const;
  void trace(const Instruction& instruction, bool completed) const;
  // Returns the event that observe records for this lane.
  [[nodiscard]] observe::Event event(observe::EventKind kind, std::uint64_t bytes) const;
  void note_stage(const Instruction& instruction, std::uint64_t begin) const;

  [[nodiscard]] Tag tag(Hop hop) const;
  void post_native(Slot slot, View values);
  [[nodiscard]] std::uint64_t slot_bytes(const Instruction& instruction) const;
  [[nodiscard]] codec::FrameInfo frame_info(const Instruction& instruction, Hop hop) const;
  [[nodiscard]] bool verbatim() const;
  [[nodiscard]] bool divides() const;
  std::span<std::byte> open_slot(const Instruction& instruction);
  // Returns the frame or other message that a slot holds.
  [[nodiscard]] static std::span<const std::byte> message_in(const SlotState& slot);
  // Returns memory in which a frame is unpacked; none where that needs none.
  [[nodiscard]] memory::BufferPool::Buffer room_for(const codec::Codec& codec, std::uint32_t count) const;
  bool finish(codec::FrameWriter& writer, Slot slot);
  // Working values of this rank's input, weighted: a pointer into a tensor, or scratch.
  const void* own_input(std::uint64_t first, std::uint32_t count, void* to) const;
  [[nodiscard]] bool held(std::uint64_t first, std::uint32_t count) const;
  // Returns own_input() plus the residuals that are held, except those at sites of `keeps`, which an encoder of this
  // call adds.
  const void* contribution(std::uint64_t first, std::uint32_t count, ResidualSites keeps, void* to) const;
  // Returns the scale of a tile; 1 unless the call is preconditioned.
  [[nodiscard]] codec::TileScale scale_of(std::uint64_t first, std::uint32_t count) const;
  // Returns contribution() divided by the scale, as it travels.
  const void* scaled_contribution(std::uint64_t first, std::uint32_t count, ResidualSites keeps,
                                  codec::TileScale& scale) const;
  void write_tile(codec::FrameWriter& writer, codec::EncodeSite site, std::uint64_t first, std::uint32_t count,
                  const void* values, codec::TileScale& scale) const;
  // Stores values that have travelled to the tensors; `values` may be the tensors' memory.
  void store_result(std::uint64_t first, std::uint32_t count, void* values, codec::TileScale& scale) const;

  HostExecutor& executor_;
  std::shared_ptr<Execution> execution_;
  Task& task_;
  std::uint64_t index_;
  Lane lane_;
  LaneLoad load_;
  Window::Opened opened_;
  std::size_t next_instruction_ = 0;
  // For observe::PeerWaits: the moment when this rank made its part of a result, and the rank whose frame came last
  // before that.
  double reduced_ = -1;
  int last_ = -1;
  bool in_call_ = false;           // all ranks wait: a native sum is the blocking call
  std::byte* in_place_ = nullptr;  // the tensor itself, where the blocking call can sum in it
  std::vector<SlotState> slots_;
  struct Pending {
    Operation operation;
    Slot slot;
    std::uint64_t posted = 0;  // observe::ticks()
    double waited = 0;         // PeerWaits::total() at that moment
    bool counted = false;
    bool terms_known = false;  // the terms of a frame that came before the weights were checked
  };
  void note_message(const Pending& pending) const;
  void note_arrival(const Pending& pending);
  std::deque<Pending> pending_;  // addresses must stay
  std::size_t open_operations_ = 0;
};

}  // namespace gradwire::exchange

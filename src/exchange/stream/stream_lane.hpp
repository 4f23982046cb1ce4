// One lane on its way through a stream executor: the round of each of its instructions, and the memory of its frames.
//
// Communication has rounds by hop: 0 for first frames and for weights, 1 for second ones. Computation has one more:
// round r reads what communication round r-1 received, and makes what communication round r sends. Where encoding needs
// the sum of weights, lane 0 begins with a round -1 that exchanges them. Rounds follow from hops alone, so that all
// ranks put a message into the same group.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "exchange/stream/stream_executor.hpp"

namespace gradwire::exchange {

/// Elements [first, first + count) of a bucket.
struct Elements {
  std::uint64_t first = 0;
  std::uint64_t count = 0;

  Elements(std::uint64_t f, std::uint64_t c) : first(f), count(c) {}
  Elements(const Chunk& chunk) : first(chunk.first), count(chunk.count) {}  // NOLINT(google-explicit-constructor)
};

class StreamLane {
 public:
  StreamLane(StreamExecutor& executor, std::shared_ptr<StreamExecution> execution, std::uint64_t index);

  [[nodiscard]] StreamExecution& execution() const noexcept { return *execution_; }
  /// Enqueues the computation of this round whose results this round's communication sends.
  void feed();
  /// Acquires memory for the frames that this round receives.
  void open_receives();
  [[nodiscard]] bool communicates() const noexcept { return has(&StreamLane::is_message); }
  /// Enqueues this round's sends and receives inside a group; `group` is its number.
  void communicate(std::uint64_t group);
  [[nodiscard]] bool reduces_natively() const noexcept { return has(&StreamLane::is_native); }
  void reduce_natively(std::uint64_t group);
  /// Enqueues the rest of this round's computation and goes on to the next round; returns whether there is one.
  bool finish_round();

 private:
  struct SlotState {
    std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
    std::uint32_t uses = 0;        // number of instructions that still need it
    std::uint64_t last_group = 0;  // the last group that sends or receives it
    bool borrowed = false;         // it is the caller's output, not acquired memory
  };
  // This rank's part of a sum: elements of the input in place, or prepared in memory of `scratch`.
  struct Part {
    const void* values = nullptr;
    DType dtype = DType::f32;
    double factor = 1;
    float* residual = nullptr;  // the kernel adds it
    std::byte* scratch = nullptr;
  };

  // The memory to which a kernel writes a result: the output, or `scratch`, from which it is copied there.
  struct Result {
    void* values = nullptr;
    DType dtype = DType::f32;
    std::byte* scratch = nullptr;
  };

  static bool is_message(const Instruction& instruction) noexcept {
    return instruction.opcode == Opcode::send || instruction.opcode == Opcode::receive;
  }
  static bool is_native(const Instruction& instruction) noexcept { return instruction.opcode == Opcode::native_reduce; }
  static bool feeds(const Instruction& instruction) noexcept;
  [[nodiscard]] bool has(bool (*wanted)(const Instruction&) noexcept) const noexcept;
  void place_instructions();
  [[nodiscard]] int round_of_hop(Hop hop) const noexcept;
  void count_uses();

  void compute(const Instruction& instruction);
  void encode(const Instruction& instruction);
  void reduce(const Instruction& instruction);
  void decode(const Instruction& instruction);
  void copy(const Instruction& instruction);
  void sum_weights(const Instruction& instruction);
  void native_load(const Instruction& instruction);
  void native_store(const Instruction& instruction);

  [[nodiscard]] double own_factor() const;
  [[nodiscard]] const double* share() const;  // device factor that replaces own_factor(), or null
  [[nodiscard]] bool divides() const;
  [[nodiscard]] double divisor() const;
  [[nodiscard]] const double* device_divisor() const;
  [[nodiscard]] kernels::CallFields fields(const codec::Codec& codec) const;
  [[nodiscard]] const void* input(Elements chunk) const;  // null: zeros
  [[nodiscard]] void* output(Elements chunk) const;
  [[nodiscard]] Part encoder_part(Elements chunk);
  [[nodiscard]] Part owner_part(Elements chunk, bool keeps_owner);
  // Makes a part in memory of its own, ready to be encoded or added.
  [[nodiscard]] Part prepared_part(Elements chunk, bool folds_local, bool folds_owner);
  // values <- own input, weighted, and the residuals of both sites where asked for.
  void prepare(Elements chunk, bool folds_local, bool folds_owner, void* values, DType dtype);
  void zeros(Elements chunk, void* values, DType dtype);
  void load_input(Elements chunk, void* values, DType dtype);
  void fold(const DeviceRange<float>& residual, Elements chunk, double factor, const double* device_factor,
            void* values, DType dtype);
  enum class Units : std::uint8_t { of_gradient, of_scale };
  // to <- factor x from, converted to `units` from the other ones. Does nothing unless the call is preconditioned.
  void rescale(Elements chunk, const void* from, DType from_dtype, double factor, void* to, DType to_dtype,
               Units units);
  // The same in place; does nothing for a null residual.
  void rescale_residual(Elements chunk, float* residual, Units units);
  [[nodiscard]] Result open_result(Elements chunk);
  void put_result(Elements chunk, const Result& result);
  [[nodiscard]] DType working() const;
  [[nodiscard]] Elements whole() const;

  std::byte* open_slot(const Instruction& instruction);
  [[nodiscard]] std::uint64_t slot_bytes(const Instruction& instruction) const;
  void used(Slot index);

  StreamExecutor& executor_;
  StreamBackend& backend_;
  std::shared_ptr<StreamExecution> execution_;
  const StreamTask& task_;
  std::uint64_t index_;
  Lane lane_;
  std::vector<int> rounds_;  // by instruction
  std::vector<SlotState> slots_;
  int round_ = 0;
  int last_round_ = 0;  // the last round of computation
};

}  // namespace gradwire::exchange

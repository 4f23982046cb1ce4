// One lane on its way through a stream executor: the round of each of its instructions, and the memory of its frames.
//
// Communication has rounds by hop: 0 for first frames and for weights, 1 for second ones. Computation has one more:
// round r reads what communication round r-1 received, and makes what communication round r sends. Where encoding needs
// the sum of weights, lane 0 begins with a round -1 that exchanges them. Rounds follow from hops alone, so that all
// ranks put a message into the same group.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

template <class T>
[[nodiscard]] bool covers(const DeviceRange<T>& range, Elements chunk) {
  return range.data != nullptr && chunk.first >= range.first && chunk.first + chunk.count <= range.first + range.count;
}

template <class T>
[[nodiscard]] bool touches(const DeviceRange<T>& range, Elements chunk) {
  return range.data != nullptr && chunk.first < range.first + range.count && range.first < chunk.first + chunk.count;
}

[[nodiscard]] inline kernels::FrameCodec frame_codec(const codec::Codec& codec, std::uint8_t terms) {
  return {.id = codec.spec().values, .k = codec.spec().k, .dtype = codec.dtype(), .terms = terms};
}

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
  static constexpr std::size_t kNone = ~std::size_t{0};
  struct SlotState {
    std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
    std::uint32_t uses = 0;        // number of instructions that still need it
    std::uint64_t last_group = 0;  // the last group that sends or receives it
    bool borrowed = false;         // it is the caller's output, not acquired memory
    bool opened = false;           // its header was written ahead of its frame
    std::size_t series = kNone;    // the series that it lies in
    std::uint64_t offset = 0;      // in the memory of that series
  };
  // The frames that one job makes or reads; they lie in one piece of memory, with a fixed pitch. One encoding or
  // decoding of each round that has several is such a job.
  struct Series {
    Opcode opcode = Opcode::encode;
    std::vector<std::size_t> instructions = {};  // in the order of the bucket's elements
    std::size_t starts_at = 0;                   // the first of them in the order of the lane
    kernels::FramePlace place = {};              // of the first frame; see kernels::FrameSeries
    kernels::FrameSeries frames = {};
    std::vector<Elements> runs = {};  // the elements, where they are next to each other together
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    std::uint32_t slots = 0;       // number of slots in its memory that are still needed
    std::uint64_t last_group = 0;  // the last group that sends or receives one of them
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
  // Finds the series of the lane, in stream_series.cpp.
  void find_series();
  [[nodiscard]] std::optional<Series> series_of(Opcode opcode, std::vector<std::size_t> instructions) const;
  [[nodiscard]] bool give_memory(std::size_t number);
  void find_inputs();
  // Runs the instruction, or its series if it is the first one there.
  void run(std::size_t index);
  void encode_series(const Series& series);
  void decode_series(const Series& series);
  // Writes the headers of a series of encoders, and with them that of this rank's sum, in one launch.
  void open_headers(const Series& series);
  [[nodiscard]] kernels::FramePlace placed(const Series& series) const;
  [[nodiscard]] bool all_ready(const Series& series) const;
  [[nodiscard]] bool lies_ready(Elements elements) const;
  [[nodiscard]] bool encodes_at_once(const Series& series) const;
  [[nodiscard]] bool decodes_at_once() const;
  [[nodiscard]] int round_of_hop(Hop hop) const noexcept;
  void count_uses();

  void trace(const Instruction& instruction) const;
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
  [[nodiscard]] const double* device_factor() const;
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
  void prepare_part(Elements chunk, bool folds_local, bool folds_owner, void* values);
  [[nodiscard]] bool folds_local_in(Elements chunk) const;
  [[nodiscard]] bool folds_owner_in(Elements chunk) const;
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
  std::vector<Series> all_series_;
  std::vector<std::size_t> series_of_;  // by instruction: the number of its series, or kNone
  int round_ = 0;
  int last_round_ = 0;  // the last round of computation
};

}  // namespace gradwire::exchange

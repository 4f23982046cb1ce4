// One lane on its way through a stream executor: the round of each of its instructions, and the memory of its frames.
//
// Communication has rounds, which the schedule gives (Instruction::round) so that all ranks put a message into the same
// group. Computation has one more: round r reads what communication round r-1 received, and makes what communication
// round r sends. Where encoding needs the sum of weights, lane 0 begins with a round -1 that exchanges them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "exchange/stream/stream_executor.hpp"
#include "exchange/stream/stream_joint.hpp"

namespace gradwire::exchange {

enum Totals : std::uint8_t { sum_of_weights, inverse_sum, own_share };  // the order of StreamBackend::sum_weights()

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

/// Returns the formula as kernels compute it. The series has fewer than kernels::kMostSeriesElements elements.
[[nodiscard]] inline kernels::FrameSeries frame_series(const ChunkSeries& chunks, std::uint32_t frames) {
  return {.frames = frames,
          .each = static_cast<std::uint32_t>(chunks.each),
          .longer = chunks.longer,
          .tiles = chunks.tiles,
          .begin = static_cast<std::uint32_t>(chunks.begin),
          .end = static_cast<std::uint32_t>(chunks.end),
          .last = static_cast<std::uint32_t>(chunks.last)};
}

/// Returns the bytes from a frame of `count` elements to the next in a block.
[[nodiscard]] std::uint64_t frame_pitch(const codec::Codec& codec, std::uint32_t count);

class StreamLane {
 public:
  StreamLane(StreamExecutor& executor, std::shared_ptr<StreamExecution> execution, std::uint64_t index);

  /// Lets lanes that have not begun, of one call each, be made together. Their shards all have elements, and their
  /// codecs are the same.
  static void lie_together(std::span<const std::unique_ptr<StreamLane>> lanes, const std::shared_ptr<Joint>& joint);

  [[nodiscard]] StreamExecution& execution() const noexcept { return *execution_; }
  [[nodiscard]] Joint* joint() const noexcept { return joint_.get(); }
  /// Enqueues the part of this round's computation whose results the messages of this round send. A second call in the
  /// same round does nothing.
  void feed();
  /// Acquires memory for the frames that this round receives.
  void open_receives();
  [[nodiscard]] bool communicates() const noexcept { return has(&StreamLane::is_message); }
  /// Enqueues this round's sends and receives inside a group; `group` is its number.
  void communicate(std::uint64_t group);
  /// Whether a library sums inside nodes in this lane.
  [[nodiscard]] bool in_nodes() const noexcept { return lane_.node.has_value(); }
  /// Whether the library itself shall still sum or gather in this round; inside a node, which of both.
  [[nodiscard]] bool uses_library() const noexcept { return !used_library_ && has(&StreamLane::is_librarys); }
  [[nodiscard]] bool sums_in_node() const noexcept { return has(&StreamLane::is<Opcode::node_sum>); }
  [[nodiscard]] bool gathers() const noexcept { return has(&StreamLane::is<Opcode::node_gather>); }
  /// Enqueues that sum or gather, inside a group of its own, with its number in its queue.
  void use_library(std::uint64_t group);
  /// Returns the last group of messages that this round's gather needs.
  [[nodiscard]] std::uint64_t brought() const noexcept;
  /// Return for each queue of messages the last group that feed(), or finish_round(), still needs.
  [[nodiscard]] StreamExecutor::Groups feed_reads() const noexcept {
    return fed_ ? StreamExecutor::Groups{} : reads(&StreamLane::feeds);
  }
  [[nodiscard]] StreamExecutor::Groups rest_reads() const noexcept { return reads(&StreamLane::is_rest); }
  /// Enqueues the rest of this round's computation and goes on to the next round; returns whether there is one.
  bool finish_round();

 private:
  using Groups = StreamExecutor::Groups;
  static constexpr std::size_t kNone = ~std::size_t{0};
  struct SlotState {
    std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
    std::uint32_t uses = 0;     // number of instructions that still need it
    Groups last_groups{};       // by queue, the last group that sends or receives it
    bool borrowed = false;      // it is the caller's output, not acquired memory
    std::size_t block = kNone;  // the block that it lies in
    std::uint64_t offset = 0;   // in that block
  };
  // The frames that one job makes or reads. Several lie in one block with a fixed pitch. One encoding or decoding of
  // each round that has several is such a job.
  struct Series {
    Opcode opcode = Opcode::encode;
    std::vector<std::size_t> instructions = {};  // in the order of the bucket's elements
    std::size_t starts_at = 0;                   // the first of them in the order of the lane
    kernels::FramePlace place = {};              // of the first frame; see kernels::FrameSeries
    kernels::FrameSeries frames = {};
    Elements origin = {0, 0};         // the elements that the job's arrays hold
    std::vector<Elements> runs = {};  // the elements, where they are next to each other together
  };
  // This rank's part of a sum: elements of the input in place, or prepared in memory of `scratch`.
  struct Part {
    const void* values = nullptr;
    kernels::PieceTable pieces = {};
    DType dtype = DType::f32;
    double factor = 1;
    float* residual = nullptr;  // the kernel adds it
    std::byte* scratch = nullptr;
  };

  // The parts of a sum; see kernels::ReduceJob.
  struct SumInputs {
    const std::uint8_t* frames = nullptr;
    std::uint32_t pitch = 0;
    int own_rank = -1;
  };

  // The memory to which a kernel writes a result: the output, or `scratch`, from which it is copied there.
  struct Result {
    void* values = nullptr;
    kernels::PieceTable pieces = {};
    DType dtype = DType::f32;
    std::byte* scratch = nullptr;
  };

  template <Opcode kOpcode>
  static bool is(const Instruction& instruction) noexcept {
    return instruction.opcode == kOpcode;
  }
  static bool is_message(const Instruction& instruction) noexcept {
    return instruction.opcode == Opcode::send || instruction.opcode == Opcode::receive;
  }
  static bool is_librarys(const Instruction& instruction) noexcept {
    return instruction.opcode == Opcode::native_reduce || instruction.opcode == Opcode::node_sum ||
           instruction.opcode == Opcode::node_gather;
  }
  static bool is_computed(const Instruction& instruction) noexcept {
    return !is_message(instruction) && !is_librarys(instruction);
  }
  static bool feeds(const Instruction& instruction) noexcept;
  static bool is_rest(const Instruction& instruction) noexcept {
    return is_computed(instruction) && !feeds(instruction);
  }
  [[nodiscard]] bool has(bool (*wanted)(const Instruction&) noexcept) const noexcept;
  [[nodiscard]] Groups reads(bool (*wanted)(const Instruction&) noexcept) const noexcept;
  void place_instructions();
  // Finds the series of the lane, in stream_series.cpp.
  void find_series();
  [[nodiscard]] std::optional<Series> series_of(Opcode opcode, std::vector<std::size_t> instructions) const;
  // Lays the slots into a new block, in order.
  void lay_out(const std::vector<Slot>& slots, std::uint64_t pitch);
  // Gives the frames of a series their places in one block, and returns whether they lie there: false where another
  // series has laid them out in another way.
  [[nodiscard]] bool give_memory(const Series& series);
  void find_inputs();
  [[nodiscard]] SumInputs inputs_of(const Instruction& sum) const;
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
  // The next functions serve lanes in which a library sums inside nodes; they are in stream_node_sums.cpp.
  void node_load(const Instruction& instruction);
  void node_fold(const Instruction& instruction);
  void sum_in_node(const Instruction& instruction, std::uint64_t group);
  void gather_in_node(const Instruction& instruction, std::uint64_t group);
  [[nodiscard]] bool is_sum(Slot slot) const noexcept { return lane_.node && lane_.node->sum == slot; }
  [[nodiscard]] DType sum_dtype() const { return task_.call.node_sums.value_or(task_.dtype); }
  // Elements of this rank's part as the node's sum, with the residuals that an encoder keeps there.
  [[nodiscard]] Part summed_part(Elements elements, bool keeps) const;
  [[nodiscard]] float* node_residual(Elements elements) const;
  // Counts bytes that were sent, and the elements that they stand for. If `peer` is this rank itself, they went to its
  // node.
  void count_sent(std::uint64_t bytes, std::uint64_t elements, int peer);

  [[nodiscard]] double own_factor() const;
  [[nodiscard]] const double* share() const;  // device factor that replaces own_factor(), or null
  [[nodiscard]] const double* device_factor() const;
  [[nodiscard]] bool divides() const;
  [[nodiscard]] double divisor() const;
  [[nodiscard]] const double* device_divisor() const;
  [[nodiscard]] kernels::CallFields fields(const codec::Codec& codec) const;
  [[nodiscard]] const void* input(Elements chunk) const;  // null: zeros
  [[nodiscard]] void* output(Elements chunk) const;
  // The tables of the task, for a job whose array would begin with `elements`.
  [[nodiscard]] kernels::PieceTable input_pieces(Elements elements) const;
  [[nodiscard]] kernels::PieceTable output_pieces(Elements elements) const;
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
  // Does the same in place; does nothing for a null residual.
  void rescale_residual(Elements chunk, float* residual, Units units);
  [[nodiscard]] Result open_result(Elements chunk);
  void put_result(Elements chunk, const Result& result);
  [[nodiscard]] DType working() const;
  [[nodiscard]] Elements whole() const;

  // Enqueues a job, or leaves that to the joint of this lane.
  void enqueue(std::span<const kernels::HeaderJob> jobs);
  void enqueue(const kernels::EncodeJob& job) { joint_ != nullptr ? joint_->add(job) : backend_.encode(job); }
  void enqueue(const kernels::ReduceJob& job) { joint_ != nullptr ? joint_->add(job) : backend_.reduce(job); }
  void enqueue(const kernels::DecodeJob& job) { joint_ != nullptr ? joint_->add(job) : backend_.decode(job); }
  // Releases memory behind all jobs so far.
  void free(std::byte* memory) { joint_ != nullptr ? joint_->release(memory) : backend_.release(memory); }
  [[nodiscard]] FrameBlock& block_of(const SlotState& slot) {
    return joint_ != nullptr ? joint_->blocks[slot.block] : blocks_[slot.block];
  }

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
  std::vector<FrameBlock> blocks_;
  std::shared_ptr<Joint> joint_ = nullptr;
  std::vector<Series> all_series_;
  std::vector<std::size_t> series_of_;  // by instruction: the number of its series, or kNone
  DType summed_as_ = DType::f32;        // the dtype of the node's sum in memory
  int round_ = 0;
  int last_round_ = 0;  // the last round of computation
  bool fed_ = false;    // in this round
  bool used_library_ = false;
};

}  // namespace gradwire::exchange

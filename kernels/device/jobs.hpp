// Jobs for device code, in plain types: there is no CUDA header, so that executors and tests on the host share it.
// All pointers are device memory unless said otherwise. Frames are 16-byte aligned; element arrays are aligned to their
// type, and 16-byte accesses are used where their address allows it. A job is enqueued; nothing blocks or allocates.
#ifndef GRADWIRE_KERNELS_DEVICE_JOBS_HPP
#define GRADWIRE_KERNELS_DEVICE_JOBS_HPP

#include <cstdint>

#include "gradwire/dtype.hpp"

namespace gradwire::kernels {

/// A codec bound to a tensor's dtype, as a frame's header names it.
struct FrameCodec {
  std::uint8_t id = 1;       // row of the table of codecs
  std::uint16_t k = 0;       // elements selected of a full tile; 0 without topk
  DType dtype = DType::f32;  // the tensor's; working values are f64 for exact over f64, otherwise f32
  std::uint8_t terms = 0;    // wire::kTerm...
};

/// Sticky words that kernels set and the host reads when it polls, so they may be pinned memory of the host. They are
/// zero at first.
struct DeviceStatus {
  std::uint32_t bad_frames = 0;  // frames with an unexpected header or bad indices, which decoded to NaN
  std::uint32_t first_bad = 0;   // 1 + the rank that made one of them
  std::uint32_t nonfinite = 0;   // not 0: NaN or Inf was encoded or is in a result
};

inline constexpr std::uint32_t kNoteWords = 256;  // of CallFields::nonfinite

/// The fields that all kernels of one call share.
struct CallFields {
  FrameCodec codec;
  std::uint32_t bucket = 0;
  const std::uint32_t* step = nullptr;  // read when the kernel runs, so that a captured graph advances it
  DeviceStatus* status = nullptr;
  // kNoteWords words in device memory that replace status->nonfinite, unless null. A tensor full of NaN notes itself
  // once for each few hundred elements: notes in the host's memory would cross the bus each, and those in one word
  // would wait for each other. So blocks note in words of their own, as far as there are so many.
  std::uint32_t* nonfinite = nullptr;
  bool by_rank = true;  // frames are numbered by rank; otherwise no number goes into DeviceStatus::first_bad
};

/// A tensor of a bucket that has several.
struct Piece {
  std::uint8_t* tensor = nullptr;  // null, in a table that is only read: zeros
  std::uint64_t begin = 0;         // elements of the bucket before it
};

/// Where the tensors of a bucket lie. It takes the place of a job's array, so that kernels read tensors and write them
/// where they are. A tensor may have any number of elements, and be aligned to an element only.
struct PieceTable {
  // There are `count` + 1 of them in device memory, read when the kernel runs, in the order of the bucket and none
  // without elements. The last one only tells, by `begin`, how many elements all tensors have.
  const Piece* pieces = nullptr;
  std::uint32_t count = 0;  // 0: the job has an array
  std::uint64_t first = 0;  // element of the bucket at which the job's array would begin
};

/// Where a frame lies and which elements of the bucket it holds.
struct FramePlace {
  std::uint8_t* bytes = nullptr;  // header, then payload
  std::uint32_t count = 0;        // elements
  std::uint32_t first_tile = 0;   // tile of the bucket at which it begins
  std::uint8_t hop = 0;           // 0: first encoding, 1: second
  int peer = -1;                  // the rank that made it, for messages
};

/// Several frames that one job makes or reads: one chunk of every shard of a bucket, by a formula, so that the
/// arguments of a kernel do not grow with the number of ranks. The job's FramePlace then has the first frame, the most
/// elements of a frame, and the first tile of shard 0's chunk; a peer of -1 stands for the number of the frame's shard.
/// The job's arrays begin at the first element of the bucket. If there is one frame, the FramePlace is all of it,
/// arrays begin at its first element, and the other numbers are unused.
struct FrameSeries {
  std::uint32_t frames = 1;
  std::uint32_t left_out = ~std::uint32_t{0};  // number of the shard that has no frame
  std::uint32_t pitch = 0;                     // bytes from a frame to the next; a multiple of 16
  std::uint32_t each = 0;                      // elements of a shard
  std::uint32_t longer = 0;                    // so many shards, the first ones, have a tile more
  std::uint32_t tiles = 0;                     // by which headers count on from a shard to the next
  std::uint32_t begin = 0;                     // the chunk's first element in its shard
  std::uint32_t end = 0;                       // elements of the bucket
  std::uint32_t last = ~std::uint32_t{0};      // the shard, if any, that has all elements up to `end`
};
// Bounds of a series, whose numbers have 32 bits since these take fewer registers. A larger series takes a
// job for each frame.
inline constexpr std::uint64_t kMostSeriesElements = 1ULL << 31;
inline constexpr std::uint64_t kMostSeriesBytes = 1ULL << 31;

/// The headers of frames, without flags.
struct HeaderJob {
  CallFields call;
  FramePlace frame;
  FrameSeries series = {};
};

/// frame <- encode(factor x values + residual); residual <- what the codec dropped. Fills header (no CRC) and payload.
struct EncodeJob {
  CallFields call;
  FramePlace frame;
  FrameSeries series = {};
  bool opened = false;           // the headers are there already
  const void* values = nullptr;  // frame.count elements of values_dtype; null: zeros
  PieceTable pieces = {};        // if not empty, in place of `values`
  DType values_dtype = DType::f32;
  double factor = 1;          // rounded to the working type first; 1: values as they are
  float* residual = nullptr;  // frame.count elements; null: none
};

/// values <- frame, or values += frame. A bad frame gives NaN.
struct DecodeJob {
  CallFields call;
  FramePlace frame;
  FrameSeries series = {};
  void* values = nullptr;
  PieceTable pieces = {};  // if not empty, in place of `values`
  DType values_dtype = DType::f32;
  bool add = false;  // only where values_dtype is the working type
};

inline constexpr int kMaxReduceInputs = 1024;               // most ranks of a sum
inline constexpr std::uint64_t kMostSumBytes = 1ULL << 32;  // of all frames of a sum

/// The sum over ranks, in rank order, of the decoded frames and the own part, which is factor x own + own_residual. The
/// sum is divided for a mean, gets the owner's residual added, and is then encoded into `out`, or stored to `result`.
/// Afterwards own_residual is zero; where it was zero before, the own part keeps its bits (-0 too).
struct ReduceJob {
  CallFields call;          // with the codec of the inputs
  FrameCodec second;        // the codec of `out`
  std::uint32_t count = 0;  // elements
  std::uint32_t first_tile = 0;
  const std::uint8_t* frames = nullptr;  // of all ranks but `own_rank`, in rank order
  std::uint32_t pitch = 0;               // bytes from a frame to the next; a multiple of 16
  int ranks = 0;
  int own_rank = -1;           // whose part is this rank's own elements, uncoded; -1: all parts are frames
  const void* own = nullptr;   // elements of own_dtype
  PieceTable own_pieces = {};  // if not empty, in place of `own`
  DType own_dtype = DType::f32;
  double factor = 1;
  float* own_residual = nullptr;
  double divisor = 1;                      // 1: a sum
  const double* device_divisor = nullptr;  // replaces `divisor` unless null: the sum of weights
  std::uint8_t* out = nullptr;             // frame of hop 1, or null
  bool opened = false;                     // the header of `out` is there already
  float* owner_residual = nullptr;         // with `out`: added before it is encoded, holds what was dropped afterwards
  void* result = nullptr;                  // where `out` is null
  PieceTable result_pieces = {};           // if not empty, in place of `result`
  DType result_dtype = DType::f32;
};

/// Returns the header of a sum's `out`.
inline HeaderJob header_of(const ReduceJob& job) {
  HeaderJob header{.call = job.call,
                   .frame = {.bytes = job.out, .count = job.count, .first_tile = job.first_tile, .hop = 1, .peer = -1}};
  header.call.codec = job.second;
  return header;
}

/// to <- factor x from, divided or multiplied by a scale (preconditioned encoding) whose element i is 2^-powers[i].
/// Working values are f32. `to` may be `from` where both dtypes have the same size.
struct RescaleJob {
  const void* from = nullptr;
  DType from_dtype = DType::f32;
  double factor = 1;  // rounded to f32 first; 1: values as they are
  void* to = nullptr;
  DType to_dtype = DType::f32;
  const std::uint8_t* powers = nullptr;  // 0 to kMostSmaller (kernels/scale.hpp)
  std::uint64_t count = 0;
  bool divides = false;  // false: multiplies
  // As in CallFields, for results that a 16-bit type cannot hold; both null: not reported.
  DeviceStatus* status = nullptr;
  std::uint32_t* nonfinite = nullptr;
};

/// One launch makes these jobs together; they lie in device memory.
template <class Job>
struct JobList {
  const Job* jobs = nullptr;
  const std::uint32_t* parts_before = nullptr;  // for each job the parts of work of the jobs before it, then of all
  std::uint32_t count = 0;
};

/// Returns the bytes of device memory that a list takes, with the jobs first.
template <class Job>
[[nodiscard]] constexpr std::uint64_t list_bytes(std::uint64_t jobs) {
  return jobs * sizeof(Job) + (jobs + 2) / 2 * 8;  // 8-byte words of numbers of 4
}

/// Writes words, which are arguments of the kernel, to device memory.
struct WordsJob {
  static constexpr std::uint32_t kMost = 480;  // all arguments of a kernel may have 4 KiB
  std::uint64_t word[kMost];
  std::uint32_t count = 0;
  std::uint64_t* to = nullptr;
};

/// A tensor that is copied to or from its place in one contiguous run. f64 -> f16 and the like round to nearest even.
struct CopyPiece {
  void* tensor = nullptr;  // null: zeros when gathering, skipped when scattering
  std::uint64_t count = 0;
  std::uint64_t offset = 0;  // in the run, in elements
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_JOBS_HPP

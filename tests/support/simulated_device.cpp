#include "tests/support/simulated_device.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "codec/codec.hpp"
#include "gradwire/error.hpp"
#include "tests/support/simulated_codecs.hpp"

namespace gradwire::test {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::byte kFresh{0xF1};  // no header has such a magic
constexpr std::byte kReleased{0xF2};

[[noreturn]] void fault(int rank, const std::string& what) {
  throw Error(ErrorCode::internal, "rank " + std::to_string(rank) + ": " + what);
}

}  // namespace

void SimulatedDevice::Clock::reach(const Clock& other) {
  compute = std::max(compute, other.compute);
  communication = std::max(communication, other.communication);
}

SimulatedDevice::SimulatedDevice(SimulatedWorld& world, int rank, int world_size)
    : world_(world), rank_(rank), world_size_(world_size) {}

void SimulatedDevice::enqueue(Queue q, Operation operation) {
  ++(q == Queue::compute ? clock(q).compute : clock(q).communication);
  queue(q).push_back(std::move(operation));
}

SimulatedDevice::Block* SimulatedDevice::block_of(const void* memory) {
  const auto* address = static_cast<const std::byte*>(memory);
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) {
    return nullptr;
  }
  Block& block = *std::prev(after)->second;
  return address < block.begin + block.size ? &block : nullptr;
}

// The next operation of `queue` uses this memory: is it acquired, and is every conflicting use of the other queue
// before it by events?
void SimulatedDevice::touch(Queue q, const void* memory, bool writes, const char* what) {
  Block* block = memory == nullptr ? nullptr : block_of(memory);
  if (block == nullptr) {
    return;  // the caller's
  }
  const Queue other = q == Queue::compute ? Queue::communication : Queue::compute;
  const std::size_t o = other == Queue::compute ? 0 : 1;
  const std::uint64_t known = clock(q).of(other);
  const bool written_there = block->wrote_on_communication == (other == Queue::communication);
  const std::uint64_t conflict = writes ? block->last_use[o] : (written_there ? block->last_write : 0);
  if (checks_races && !block->live) {
    fault(rank_, std::string(what) + " uses memory that is not acquired");
  }
  if (checks_races && conflict > known) {
    fault(rank_, std::string(what) + " on the " + name_of(q) + " queue " + (writes ? "writes" : "reads") +
                     " memory that operation " + std::to_string(conflict) + " of the " + name_of(other) +
                     " queue uses, and no event is between them");
  }
  const std::uint64_t now = clock(q).of(q) + 1;
  block->last_use[q == Queue::compute ? 0 : 1] = now;
  if (writes) {
    block->last_write = now;
    block->wrote_on_communication = q == Queue::communication;
  }
}

void SimulatedDevice::poison(const Block& block, std::byte value, const char* what) {
  enqueue(Queue::compute, {.what = what, .work = [memory = block.begin, size = block.size, value] {
                             std::memset(memory, static_cast<int>(value), size);
                           }});
}

std::byte* SimulatedDevice::acquire(std::size_t bytes) {
  if (acquired_ == faults.fail_acquire) {
    throw Error(ErrorCode::out_of_memory, "no memory for " + std::to_string(bytes) + " bytes");
  }
  const std::size_t size = std::max<std::size_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment;
  Block* block = nullptr;
  if (auto& unused = free_[size]; !unused.empty()) {
    block = unused.back();
    unused.pop_back();
  } else {
    auto made = std::make_unique<Block>();
    made->bytes.resize(size + kAlignment);
    const auto address = reinterpret_cast<std::uintptr_t>(made->bytes.data());
    made->begin = made->bytes.data() + (kAlignment - address % kAlignment) % kAlignment;
    made->size = size;
    block = made.get();
    blocks_.emplace(made->begin, std::move(made));
  }
  block->live = true;
  live_bytes_ += size;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  touch(Queue::compute, block->begin, true, "acquire");
  poison(*block, kFresh, "acquire");
  if (acquired_++ == faults.early_release) {
    release(block->begin);
  }
  return block->begin;
}

void SimulatedDevice::release(std::byte* memory) noexcept {
  Block* block = block_of(memory);
  if (block == nullptr || !block->live) {
    return;  // what a fault released already
  }
  try {
    touch(Queue::compute, memory, true, "release");
  } catch (const Error& error) {
    world_.late_fault_ = error.what();
  }
  poison(*block, kReleased, "release");
  block->live = false;
  live_bytes_ -= block->size;
  free_[block->size].push_back(block);
}

SimulatedDevice::Event SimulatedDevice::record(Queue q) {
  const auto event = static_cast<Event>(events_.size());
  enqueue(q, {.kind = Kind::record, .what = "record " + std::to_string(event), .event = event});
  events_.push_back({q, clock(q), ++recorded_[q == Queue::compute ? 0 : 1]});
  reached_.push_back(false);
  return event;
}

void SimulatedDevice::wait(Queue q, Event event) {
  if (waits_++ == faults.drop_wait) {
    return;
  }
  const Recorded& recorded = events_.at(event);
  if (recorded_[recorded.queue == Queue::compute ? 0 : 1] - recorded.ordinal > kLiveEvents) {
    fault(rank_, "waits for event " + std::to_string(event) + ", which is too old");
  }
  clock(q).reach(recorded.clock);
  enqueue(q, {.kind = Kind::wait, .what = "wait " + std::to_string(event), .event = event});
}

void SimulatedDevice::encode(const kernels::EncodeJob& job) {
  touch(Queue::compute, job.values, false, "encode");
  touch(Queue::compute, job.frame.bytes, true, "encode");
  enqueue(Queue::compute, {.what = "encode", .work = [job] { run_encode(job); }});
}

void SimulatedDevice::decode(const kernels::DecodeJob& job) {
  touch(Queue::compute, job.frame.bytes, false, "decode");
  touch(Queue::compute, job.values, true, "decode");
  enqueue(Queue::compute, {.what = "decode", .work = [job] { run_decode(job); }});
}

void SimulatedDevice::reduce(const kernels::ReduceJob& job) {
  std::vector<kernels::ReduceInput> inputs(job.inputs, job.inputs + job.ranks);
  for (const kernels::ReduceInput& input : inputs) {
    touch(Queue::compute, input.bytes, false, "reduce");
  }
  touch(Queue::compute, job.own, false, "reduce");
  touch(Queue::compute, job.device_divisor, false, "reduce");
  touch(Queue::compute, job.out, true, "reduce");
  enqueue(Queue::compute, {.what = "reduce", .work = [job, inputs] { run_reduce(job, inputs); }});
}

void SimulatedDevice::fold(float* residual, double factor, const double* device_factor, void* values, DType dtype,
                           std::uint64_t count) {
  touch(Queue::compute, device_factor, false, "fold");
  touch(Queue::compute, values, true, "fold");
  enqueue(Queue::compute, {.what = "fold", .work = [=] {
                             run_fold(residual, device_factor == nullptr ? factor : *device_factor, values, dtype,
                                      count);
                           }});
}

void SimulatedDevice::convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count,
                              double factor, const double* device_factor, double divisor,
                              const double* device_divisor) {
  touch(Queue::compute, from, false, "convert");
  touch(Queue::compute, device_factor, false, "convert");
  touch(Queue::compute, device_divisor, false, "convert");
  touch(Queue::compute, to, true, "convert");
  enqueue(Queue::compute, {.what = "convert", .work = [=] {
                             run_convert(from, from_dtype, to, to_dtype, count,
                                         device_factor == nullptr ? factor : *device_factor,
                                         device_divisor == nullptr ? divisor : *device_divisor);
                           }});
}

void SimulatedDevice::gather(std::span<const kernels::CopyPiece> pieces, DType tensors, void* run, DType run_dtype) {
  touch(Queue::compute, run, true, "gather");
  std::vector<kernels::CopyPiece> copies(pieces.begin(), pieces.end());
  enqueue(Queue::compute, {.what = "gather", .work = [=] {
                             for (const kernels::CopyPiece& piece : copies) {
                               std::byte* to = static_cast<std::byte*>(run) + piece.offset * element_bytes(run_dtype);
                               if (piece.tensor == nullptr) {
                                 std::memset(to, 0, piece.count * element_bytes(run_dtype));
                               } else {
                                 run_convert(piece.tensor, tensors, to, run_dtype, piece.count, 1, 1);
                               }
                             }
                           }});
}

void SimulatedDevice::scatter(std::span<const kernels::CopyPiece> pieces, DType tensors, const void* run,
                              DType run_dtype) {
  touch(Queue::compute, run, false, "scatter");
  std::vector<kernels::CopyPiece> copies(pieces.begin(), pieces.end());
  enqueue(Queue::compute, {.what = "scatter", .work = [=] {
                             for (const kernels::CopyPiece& piece : copies) {
                               if (piece.tensor != nullptr) {
                                 run_convert(
                                     static_cast<const std::byte*>(run) + piece.offset * element_bytes(run_dtype),
                                     run_dtype, piece.tensor, tensors, piece.count, 1, 1);
                               }
                             }
                           }});
}

void SimulatedDevice::copy(void* to, const void* from, std::size_t bytes) {
  touch(Queue::compute, from, false, "copy");
  touch(Queue::compute, to, true, "copy");
  enqueue(Queue::compute, {.what = "copy", .work = [=] { std::memmove(to, from, bytes); }});
}

void SimulatedDevice::sum_weights(std::span<const double* const> weights, double own, double* totals) {
  for (const double* weight : weights) {
    touch(Queue::compute, weight, false, "sum_weights");
  }
  touch(Queue::compute, totals, true, "sum_weights");
  std::vector<const double*> all(weights.begin(), weights.end());
  enqueue(Queue::compute, {.what = "sum_weights", .work = [=] {
                             double sum = 0;
                             bool valid = true;
                             for (const double* weight : all) {
                               valid = valid && *weight >= 0 && std::isfinite(*weight);
                               sum += *weight;
                             }
                             const double nan = std::numeric_limits<double>::quiet_NaN();
                             valid = valid && sum > 0 && std::isfinite(sum);
                             totals[0] = valid ? sum : nan;
                             totals[1] = valid ? 1 / sum : nan;
                             totals[2] = valid ? own / sum : nan;
                           }});
}

void SimulatedDevice::store_weight(double weight, double* to) {
  touch(Queue::compute, to, true, "store_weight");
  enqueue(Queue::compute, {.what = "store_weight", .work = [=] { *to = weight; }});
}

void SimulatedDevice::begin_group() {
  if (in_group_) {
    fault(rank_, "begins a group inside a group");
  }
  in_group_ = true;
}

void SimulatedDevice::send(std::span<const std::byte> bytes, int peer) {
  touch(Queue::communication, bytes.data(), false, "send");
  auto* memory = const_cast<std::byte*>(bytes.data());  // NOLINT: only read
  group_.push_back({SimulatedMessage::Kind::send, memory, bytes.size(), peer});
}

void SimulatedDevice::receive(std::span<std::byte> bytes, int peer) {
  touch(Queue::communication, bytes.data(), true, "receive");
  group_.push_back({SimulatedMessage::Kind::receive, bytes.data(), bytes.size(), peer});
}

void SimulatedDevice::all_reduce(void* values, DType dtype, std::uint64_t count) {
  touch(Queue::communication, values, true, "all_reduce");
  group_.push_back(
      {SimulatedMessage::Kind::all_reduce, static_cast<std::byte*>(values), count * element_bytes(dtype), -1, dtype});
}

void SimulatedDevice::end_group() {
  if (!in_group_) {
    fault(rank_, "ends a group that it did not begin");
  }
  in_group_ = false;
  const bool native = !group_.empty() && group_.front().kind == SimulatedMessage::Kind::all_reduce;
  if (native && group_.size() != 1) {
    fault(rank_, "a native sum shares its group");
  }
  Operation group{.kind = Kind::group, .what = "group" + describe(group_), .messages = std::move(group_)};
  group_.clear();
  if (groups_++ == faults.swap_group) {
    held_back_ = std::move(group);
    return;
  }
  enqueue(Queue::communication, std::move(group));
  if (held_back_) {
    enqueue(Queue::communication, *std::exchange(held_back_, std::nullopt));
  }
}

}  // namespace gradwire::test

// The instructions of a lane that compute, as jobs for a device: the same arithmetic in the same order as
// lane_compute.cpp.
#include <algorithm>
#include <array>
#include <string>

#include "exchange/stream/stream_lane.hpp"

namespace gradwire::exchange {
namespace {

float* residual_of(const DeviceRange<float>& range, Elements chunk, const StreamTask& task, const char* site) {
  if (!covers(range, chunk)) {
    throw Error(ErrorCode::invalid_argument,
                task.name + ": the " + site + " residual covers " + std::to_string(range.data ? range.count : 0) +
                    " elements from " + std::to_string(range.first) + " on, but this call keeps those of elements " +
                    std::to_string(chunk.first) + " to " + std::to_string(chunk.first + chunk.count));
  }
  return range.data + (chunk.first - range.first);
}

template <class T>
T* element(const DeviceRange<T>& range, Elements chunk, const StreamTask& task, const char* what) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  if (!covers(range, chunk)) {
    throw Error(ErrorCode::invalid_argument, task.name + ": the " + what + " has " + std::to_string(range.count) +
                                                 " elements from " + std::to_string(range.first) +
                                                 " on, but elements " + std::to_string(chunk.first) + " to " +
                                                 std::to_string(chunk.first + chunk.count) + " are needed");
  }
  return static_cast<Byte*>(range.data) + (chunk.first - range.first) * element_bytes(task.dtype);
}

kernels::PieceTable from(kernels::PieceTable table, Elements elements) {
  table.first = elements.first;
  return table;
}

}  // namespace

void StreamLane::trace(const Instruction& instruction) const {
  executor_.trace({.opcode = instruction.opcode,
                   .sequence = execution_->sequence_,
                   .lane = index_,
                   .round = round_,
                   .peer = instruction.peer});
}

void StreamLane::compute(const Instruction& instruction) {
  trace(instruction);
  if (feeds(instruction)) {
    executor_.computed();
  }
  switch (instruction.opcode) {
    case Opcode::encode: encode(instruction); break;
    case Opcode::reduce:
    case Opcode::reduce_encode: reduce(instruction); break;
    case Opcode::decode: decode(instruction); break;
    case Opcode::copy: copy(instruction); break;
    case Opcode::weight: backend_.store_weight(task_.weight, reinterpret_cast<double*>(open_slot(instruction))); break;
    case Opcode::sum_weights: sum_weights(instruction); break;
    case Opcode::native_load: native_load(instruction); break;
    case Opcode::native_store: native_store(instruction); break;
    case Opcode::node_load: node_load(instruction); break;
    case Opcode::node_fold: node_fold(instruction); break;
    case Opcode::receive:
    case Opcode::send:
    case Opcode::native_ask:
    case Opcode::native_reduce:
    case Opcode::node_sum:
    case Opcode::node_gather: break;
  }
  for_each_slot(instruction, [this](Slot slot) { used(slot); });
}

kernels::CallFields StreamLane::fields(const codec::Codec& codec) const {
  return {.codec = frame_codec(codec, task_.terms),
          .bucket = task_.bucket,
          .step = task_.step,
          .status = task_.status,
          .nonfinite = task_.nonfinite,
          .by_rank = !lane_.node};
}

DType StreamLane::working() const {
  return task_.call.codecs.first.working() == codec::Working::f64 ? DType::f64 : DType::f32;
}

const void* StreamLane::input(Elements chunk) const {
  return task_.input.data == nullptr ? nullptr : element(task_.input, chunk, task_, "input");
}

void* StreamLane::output(Elements chunk) const { return element(task_.output, chunk, task_, "output"); }

kernels::PieceTable StreamLane::input_pieces(Elements elements) const { return from(task_.input_pieces, elements); }

kernels::PieceTable StreamLane::output_pieces(Elements elements) const { return from(task_.output_pieces, elements); }

double StreamLane::own_factor() const { return task_.call.weighted ? task_.weight : task_.factor; }

const double* StreamLane::share() const {
  return task_.call.scales_first() && task_.reduction == Reduction::mean ? execution_->totals_ + own_share : nullptr;
}

const double* StreamLane::device_factor() const { return share() != nullptr ? share() : task_.device_factor; }

bool StreamLane::divides() const { return task_.reduction == Reduction::mean && !task_.call.scales_first(); }

double StreamLane::divisor() const { return divides() && !task_.call.weighted ? backend_.world_size() : 1.0; }

const double* StreamLane::device_divisor() const {
  return divides() && task_.call.weighted ? execution_->totals_ + sum_of_weights : nullptr;
}

void StreamLane::zeros(Elements chunk, void* values, DType dtype) {
  const kernels::CopyPiece piece{.tensor = nullptr, .count = chunk.count, .offset = 0};
  backend_.gather({&piece, 1}, task_.dtype, values, dtype);
}

void StreamLane::load_input(Elements chunk, void* values, DType dtype) {
  const void* from = input(chunk);
  if (from == nullptr) {
    zeros(chunk, values, dtype);
  } else if (dtype == task_.dtype && own_factor() == 1 && device_factor() == nullptr) {
    if (from != values) {
      backend_.copy(values, from, chunk.count * element_bytes(dtype));
    }
  } else {
    backend_.convert(from, task_.dtype, values, dtype, chunk.count, own_factor(), device_factor(), 1.0, nullptr);
  }
}

void StreamLane::fold(const DeviceRange<float>& residual, Elements chunk, double factor, const double* device_factor,
                      void* values, DType dtype) {
  if (!touches(residual, chunk)) {
    return;
  }
  const std::uint64_t begin = std::max(residual.first, chunk.first);
  const std::uint64_t end = std::min(residual.first + residual.count, chunk.first + chunk.count);
  backend_.fold(residual.data + (begin - residual.first), factor, device_factor,
                static_cast<std::byte*>(values) + (begin - chunk.first) * element_bytes(dtype), dtype, end - begin);
}

// Local residuals are in units of w x g, owner residuals in units of the result. So an owner residual that is added to
// w x g is multiplied by the sum of weights, and a local residual that is added to w / sum x g is divided by it.
void StreamLane::prepare(Elements chunk, bool folds_local, bool folds_owner, void* values, DType dtype) {
  load_input(chunk, values, dtype);
  if (folds_local) {
    fold(task_.local_residual, chunk, 1.0, share() == nullptr ? nullptr : execution_->totals_ + inverse_sum, values,
         dtype);
  }
  if (folds_owner) {
    fold(task_.owner_residual, chunk, divisor(), device_divisor(), values, dtype);
  }
}

void StreamLane::rescale(Elements chunk, const void* from, DType from_dtype, double factor, void* to, DType to_dtype,
                         Units units) {
  if (!task_.call.preconditioned) {
    return;
  }
  if (!covers(task_.powers, chunk)) {
    throw Error(ErrorCode::internal, task_.name + ": the scale does not cover elements " + std::to_string(chunk.first) +
                                         " to " + std::to_string(chunk.first + chunk.count));
  }
  backend_.rescale({.from = from,
                    .from_dtype = from_dtype,
                    .factor = factor,
                    .to = to,
                    .to_dtype = to_dtype,
                    .powers = task_.powers.data + (chunk.first - task_.powers.first),
                    .count = chunk.count,
                    .divides = units == Units::of_scale,
                    .status = units == Units::of_gradient ? task_.status : nullptr,
                    .nonfinite = units == Units::of_gradient ? task_.nonfinite : nullptr});
}

void StreamLane::rescale_residual(Elements chunk, float* residual, Units units) {
  if (residual != nullptr) {
    rescale(chunk, residual, DType::f32, 1.0, residual, DType::f32, units);
  }
}

// Values in units of the scale are f32 for every dtype of the tensor.
StreamLane::Result StreamLane::open_result(Elements chunk) {
  if (task_.output_pieces.count != 0) {
    return {.pieces = output_pieces(chunk), .dtype = task_.dtype};
  }
  if (!task_.call.preconditioned || task_.dtype == DType::f32) {
    return {.values = output(chunk), .dtype = task_.dtype};
  }
  std::byte* scratch = backend_.acquire(chunk.count * sizeof(float));
  return {.values = scratch, .dtype = DType::f32, .scratch = scratch};
}

void StreamLane::put_result(Elements chunk, const Result& result) {
  if (task_.call.preconditioned) {
    rescale(chunk, result.values, result.dtype, 1.0, output(chunk), task_.dtype, Units::of_gradient);
  }
  if (result.scratch != nullptr) {
    backend_.release(result.scratch);
  }
}

StreamLane::Part StreamLane::prepared_part(Elements chunk, bool folds_local, bool folds_owner) {
  Part part{.values = nullptr, .dtype = working(), .factor = 1};
  part.scratch = backend_.acquire(chunk.count * element_bytes(part.dtype));
  part.values = part.scratch;
  prepare_part(chunk, folds_local, folds_owner, part.scratch);
  return part;
}

void StreamLane::prepare_part(Elements chunk, bool folds_local, bool folds_owner, void* values) {
  const bool only_scaled = task_.call.preconditioned && !folds_local && !folds_owner && device_factor() == nullptr;
  if (only_scaled && task_.input.data != nullptr) {
    rescale(chunk, input(chunk), task_.dtype, own_factor(), values, working(), Units::of_scale);
    return;
  }
  prepare(chunk, folds_local, folds_owner, values, working());
  rescale(chunk, values, working(), 1.0, values, working(), Units::of_scale);
}

bool StreamLane::folds_local_in(Elements chunk) const {
  return !task_.call.residuals.keeps.local && touches(task_.local_residual, chunk);
}

bool StreamLane::folds_owner_in(Elements chunk) const { return touches(task_.owner_residual, chunk); }

// Whether an encoder takes the elements from where they lie.
bool StreamLane::lies_ready(Elements elements) const {
  return !folds_local_in(elements) && !folds_owner_in(elements) && device_factor() == nullptr &&
         !task_.call.preconditioned;
}

StreamLane::Part StreamLane::encoder_part(Elements chunk) {
  Part part =
      lies_ready(chunk)
          ? Part{.values = input(chunk), .pieces = input_pieces(chunk), .dtype = task_.dtype, .factor = own_factor()}
          : prepared_part(chunk, folds_local_in(chunk), folds_owner_in(chunk));
  if (task_.call.residuals.keeps.local) {
    part.residual = residual_of(task_.local_residual, chunk, task_, "local");
  }
  return part;
}

// The owner's part of a sum is not encoded, so its local residual is added to it.
StreamLane::Part StreamLane::owner_part(Elements chunk, bool keeps_owner) {
  const bool folds_owner = !keeps_owner && touches(task_.owner_residual, chunk);
  const bool folds_local = touches(task_.local_residual, chunk);
  const bool zeros = task_.input.data == nullptr && task_.input_pieces.count == 0;
  if (folds_owner || device_factor() != nullptr || zeros || task_.call.preconditioned ||
      (folds_local && !covers(task_.local_residual, chunk))) {
    return prepared_part(chunk, folds_local, folds_owner);
  }
  return {.values = input(chunk),
          .pieces = input_pieces(chunk),
          .dtype = task_.dtype,
          .factor = own_factor(),
          .residual = folds_local ? residual_of(task_.local_residual, chunk, task_, "local") : nullptr};
}

void StreamLane::encode(const Instruction& instruction) {
  std::byte* frame = slots_[instruction.slot].memory;
  const bool opened = frame != nullptr;  // with its header, by open_headers()
  frame = opened ? frame : open_slot(instruction);
  const Part part =
      lane_.node ? summed_part(instruction.chunk, task_.call.residuals.keeps.intra) : encoder_part(instruction.chunk);
  rescale_residual(instruction.chunk, part.residual, Units::of_scale);
  enqueue(kernels::EncodeJob{.call = fields(task_.call.codecs.of(instruction.hop)),
                             .frame = {.bytes = reinterpret_cast<std::uint8_t*>(frame),
                                       .count = instruction.chunk.count,
                                       .first_tile = instruction.chunk.first_tile,
                                       .hop = static_cast<std::uint8_t>(instruction.hop),
                                       .peer = backend_.rank()},
                             .opened = opened,
                             .values = part.values,
                             .pieces = part.pieces,
                             .values_dtype = part.dtype,
                             .factor = part.factor,
                             .residual = part.residual});
  rescale_residual(instruction.chunk, part.residual, Units::of_gradient);
  if (part.scratch != nullptr) {
    free(part.scratch);
  }
}

void StreamLane::reduce(const Instruction& instruction) {
  const bool encodes = instruction.opcode == Opcode::reduce_encode;
  const bool keeps_owner = encodes && task_.call.residuals.keeps.owner;
  const SumInputs inputs = inputs_of(instruction);
  std::byte* frame = encodes ? slots_[instruction.slot].memory : nullptr;
  const bool opened = frame != nullptr;  // with its header, by open_headers()
  frame = opened || !encodes ? frame : open_slot(instruction);
  const Part own = inputs.own_rank < 0 ? Part{.dtype = task_.dtype}
                   : lane_.node        ? summed_part(instruction.chunk, false)
                                       : owner_part(instruction.chunk, keeps_owner);
  const Result result = encodes ? Result{.dtype = task_.dtype} : open_result(instruction.chunk);
  float* residual = !keeps_owner ? nullptr
                    : lane_.node ? node_residual(instruction.chunk)
                                 : residual_of(task_.owner_residual, instruction.chunk, task_, "owner");
  rescale_residual(instruction.chunk, residual, Units::of_scale);
  enqueue(kernels::ReduceJob{.call = fields(task_.call.codecs.first),
                             .second = frame_codec(task_.call.codecs.second, task_.terms),
                             .count = instruction.chunk.count,
                             .first_tile = instruction.chunk.first_tile,
                             .frames = inputs.frames,
                             .pitch = inputs.pitch,
                             .ranks = static_cast<int>(instruction.inputs.size()),
                             .own_rank = inputs.own_rank,
                             .own = own.values,
                             .own_pieces = own.pieces,
                             .own_dtype = own.dtype,
                             .factor = own.factor,
                             .own_residual = own.residual,
                             .divisor = divisor(),
                             .device_divisor = device_divisor(),
                             .out = reinterpret_cast<std::uint8_t*>(frame),
                             .opened = opened,
                             .owner_residual = residual,
                             .result = result.values,
                             .result_pieces = result.pieces,
                             .result_dtype = result.dtype});
  rescale_residual(instruction.chunk, residual, Units::of_gradient);
  if (!encodes) {
    put_result(instruction.chunk, result);
  }
  if (own.scratch != nullptr) {
    free(own.scratch);
  }
}

void StreamLane::decode(const Instruction& instruction) {
  const Result result = open_result(instruction.chunk);
  enqueue(kernels::DecodeJob{.call = fields(task_.call.codecs.of(instruction.hop)),
                             .frame = {.bytes = reinterpret_cast<std::uint8_t*>(slots_[instruction.slot].memory),
                                       .count = instruction.chunk.count,
                                       .first_tile = instruction.chunk.first_tile,
                                       .hop = static_cast<std::uint8_t>(instruction.hop),
                                       .peer = instruction.peer},
                             .values = result.values,
                             .pieces = result.pieces,
                             .values_dtype = result.dtype,
                             .add = false});
  put_result(instruction.chunk, result);
}

// In a world of one the result is the input plus any residual that is held. Weights are known there.
void StreamLane::copy(const Instruction& instruction) {
  const Elements chunk = instruction.chunk;
  const bool mean = task_.reduction == Reduction::mean;
  const double total = task_.call.weighted ? task_.weight : 1.0;
  const bool share = task_.call.scales_first() && mean;  // w / w
  const bool folds = total > 0 && (touches(task_.local_residual, chunk) || touches(task_.owner_residual, chunk));
  const void* from = input(chunk);
  void* to = output(chunk);
  if (from == nullptr && !folds) {
    zeros(chunk, to, task_.dtype);
    return;
  }
  const bool is_input = task_.call.weighted ? mean : own_factor() == 1 && device_factor() == nullptr;
  if (!folds && is_input) {  // one rank's weighted mean is its input
    if (from != to) {
      backend_.copy(to, from, chunk.count * element_bytes(task_.dtype));
    }
    return;
  }
  std::byte* values = backend_.acquire(chunk.count * element_bytes(working()));
  if (from == nullptr) {
    zeros(chunk, values, working());
  } else {
    backend_.convert(from, task_.dtype, values, working(), chunk.count, share ? 1.0 : own_factor(), task_.device_factor,
                     1.0, nullptr);
  }
  if (folds) {
    fold(task_.local_residual, chunk, share ? 1 / total : 1.0, nullptr, values, working());
    fold(task_.owner_residual, chunk, mean && !share ? total : 1.0, nullptr, values, working());
  }
  backend_.convert(values, working(), to, task_.dtype, chunk.count, 1.0, nullptr, mean && !share ? total : 1.0,
                   nullptr);
  backend_.release(values);
}

void StreamLane::sum_weights(const Instruction& instruction) {
  std::vector<const double*> weights;
  weights.reserve(instruction.inputs.size());
  for (const Slot slot : instruction.inputs) {
    weights.push_back(reinterpret_cast<const double*>(slots_[slot].memory));
  }
  backend_.sum_weights(weights, task_.weight, execution_->totals_);
}

Elements StreamLane::whole() const { return {0, task_.count}; }

// The sum is made in the output itself where that has the dtype that travels.
void StreamLane::native_load(const Instruction& instruction) {
  const DType dtype = task_.call.codecs.first.dtype();
  SlotState& slot = slots_[instruction.slot];
  if (dtype == task_.dtype) {
    slot.bytes = slot_bytes(instruction);
    slot.memory = static_cast<std::byte*>(output(whole()));
    slot.borrowed = true;
  } else {
    open_slot(instruction);
  }
  prepare(whole(), true, true, slot.memory, dtype);
}

void StreamLane::native_store(const Instruction& instruction) {
  const DType dtype = task_.call.codecs.first.dtype();
  if (slots_[instruction.slot].borrowed && !divides()) {
    return;
  }
  backend_.convert(slots_[instruction.slot].memory, dtype, output(whole()), task_.dtype, task_.count, 1.0, nullptr,
                   divisor(), device_divisor());
}

}  // namespace gradwire::exchange

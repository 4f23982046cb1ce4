#include "codec/tensor_list.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "codec/float_environment.hpp"
#include "codec/registry.hpp"
#include "gradwire/error.hpp"

namespace gradwire::codec {
namespace {

constexpr std::size_t bytes_of(Working working) { return working == Working::f64 ? sizeof(double) : sizeof(float); }

bool aligned(const void* address, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(address) % bytes == 0; }

// The exact codec's conversions of 16-bit types serve here too.
const TileCoder& converter(DType dtype) { return active_instruction_set().coder(codecs().front(), dtype); }

void widen(DType dtype, const std::byte* in, std::uint32_t count, float* out) {
  if (dtype != DType::f64) {
    converter(dtype).decode({}, reinterpret_cast<const std::uint8_t*>(in), count, out);
    return;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(kernels::load<double>(in, i));
  }
}

void narrow(DType dtype, const float* in, std::uint32_t count, std::byte* out) {
  if (dtype != DType::f64) {
    converter(dtype).narrow(in, count, reinterpret_cast<std::uint8_t*>(out));
    return;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    kernels::store(out, i, static_cast<double>(in[i]));
  }
}

}  // namespace

TensorList::TensorList(DType dtype, Working working) : dtype_(dtype), working_(working) {
  if (working == Working::f64 && dtype != DType::f64) {
    throw Error(ErrorCode::internal,
                "tensor list: f64 working values over " + std::string(to_string(dtype)) + " tensors");
  }
}

void TensorList::append(const void* input, void* output, std::uint64_t count) {
  if (count == 0) {
    return;
  }
  segments_.push_back({static_cast<const std::byte*>(input), static_cast<std::byte*>(output), count_, count});
  count_ += count;
}

std::byte* TensorList::whole_output() const noexcept {
  const bool whole =
      segments_.size() == 1 && !converts(Form::working) && aligned(segments_.front().output, bytes_of(working_));
  return whole ? segments_.front().output : nullptr;
}

std::size_t TensorList::unit(Form form) const noexcept {
  return form == Form::verbatim ? element_bytes(dtype_) : bytes_of(working_);
}

bool TensorList::converts(Form form) const noexcept {
  const DType same = working_ == Working::f64 ? DType::f64 : DType::f32;
  return form == Form::working && dtype_ != same;
}

std::vector<TensorList::Segment>::const_iterator TensorList::segment_at(std::uint64_t first,
                                                                        std::uint32_t count) const {
  if (first > count_ || count > count_ - first) {
    throw Error(ErrorCode::internal, "tensor list: " + std::to_string(count) + " elements from " +
                                         std::to_string(first) + " on, it has " + std::to_string(count_));
  }
  return std::ranges::upper_bound(segments_, first, {}, &Segment::first) - 1;
}

template <class Body>
void TensorList::for_each_piece(std::uint64_t first, std::uint32_t count, Body body) const {
  if (count == 0) {
    return;
  }
  const std::size_t stored = element_bytes(dtype_);
  auto segment = segment_at(first, count);
  for (std::uint32_t done = 0; done < count; ++segment) {
    const std::uint64_t offset = first + done - segment->first;
    const auto piece = static_cast<std::uint32_t>(std::min<std::uint64_t>(count - done, segment->count - offset));
    body(segment->input == nullptr ? nullptr : segment->input + offset * stored,
         segment->output == nullptr ? nullptr : segment->output + offset * stored, done, piece);
    done += piece;
  }
}

const void* TensorList::load(Form form, std::uint64_t first, std::uint32_t count, void* scratch) const {
  if (count == 0) {
    return scratch;
  }
  const void* in_place = nullptr;
  auto* out = static_cast<std::byte*>(scratch);
  const std::size_t bytes = unit(form);
  const FloatEnvironment environment;
  for_each_piece(first, count,
                 [&](const std::byte* input, std::byte* /*output*/, std::uint32_t done, std::uint32_t piece) {
                   if (input == nullptr) {
                     std::memset(out + done * bytes, 0, piece * bytes);
                   } else if (converts(form)) {
                     widen(dtype_, input, piece, reinterpret_cast<float*>(out) + done);
                   } else if (piece == count && aligned(input, bytes)) {
                     in_place = input;
                   } else {
                     std::memcpy(out + done * bytes, input, piece * bytes);
                   }
                 });
  return in_place != nullptr ? in_place : scratch;
}

void* TensorList::target(Form form, std::uint64_t first, std::uint32_t count, void* scratch) const {
  void* in_place = nullptr;
  for_each_piece(first, count,
                 [&](const std::byte* /*input*/, std::byte* output, std::uint32_t /*done*/, std::uint32_t piece) {
                   if (piece == count && output != nullptr && !converts(form) && aligned(output, unit(form))) {
                     in_place = output;
                   }
                 });
  return in_place != nullptr ? in_place : scratch;
}

void TensorList::store(Form form, std::uint64_t first, std::uint32_t count, const void* values) const {
  const auto* in = static_cast<const std::byte*>(values);
  const std::size_t bytes = unit(form);
  const FloatEnvironment environment;
  for_each_piece(first, count,
                 [&](const std::byte* /*input*/, std::byte* output, std::uint32_t done, std::uint32_t piece) {
                   if (output == nullptr || output == in + done * bytes) {
                     return;
                   }
                   if (converts(form)) {
                     narrow(dtype_, reinterpret_cast<const float*>(in) + done, piece, output);
                   } else {
                     std::memcpy(output, in + done * bytes, piece * bytes);
                   }
                 });
}

bool TensorList::finite_outputs(std::uint64_t first, std::uint32_t count) const {
  bool finite = true;
  for_each_piece(first, count,
                 [&](const std::byte* /*input*/, std::byte* output, std::uint32_t /*done*/, std::uint32_t piece) {
                   finite = finite && (output == nullptr || all_finite(dtype_, output, piece));
                 });
  return finite;
}

const void* TensorList::load(std::uint64_t first, std::uint32_t count, void* scratch) const {
  return load(Form::working, first, count, scratch);
}
void* TensorList::target(std::uint64_t first, std::uint32_t count, void* scratch) const {
  return target(Form::working, first, count, scratch);
}
void TensorList::store(std::uint64_t first, std::uint32_t count, const void* values) const {
  store(Form::working, first, count, values);
}
const void* TensorList::load_verbatim(std::uint64_t first, std::uint32_t count, void* scratch) const {
  return load(Form::verbatim, first, count, scratch);
}
void* TensorList::target_verbatim(std::uint64_t first, std::uint32_t count, void* scratch) const {
  return target(Form::verbatim, first, count, scratch);
}
void TensorList::store_verbatim(std::uint64_t first, std::uint32_t count, const void* bytes) const {
  store(Form::verbatim, first, count, bytes);
}

}  // namespace gradwire::codec

// Jobs for the device beside the same jobs for the host: inputs with every special value, and the host's results
// (tests/support/simulated_codecs.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codec/codec.hpp"
#include "kernels/device/jobs.hpp"
#include "tests/gpu/check.hpp"
#include "tests/gpu/device.hpp"

namespace gradwire::gpu {

/// One codec over one dtype, by itself or behind topk.
struct Case {
  CodecSpec spec;
  DType dtype = DType::f32;
  [[nodiscard]] kernels::FrameCodec frame_codec() const { return {spec.values, spec.k, dtype}; }
  [[nodiscard]] codec::Codec codec() const { return {spec, dtype}; }
  [[nodiscard]] DType working() const { return codec().working() == codec::Working::f64 ? DType::f64 : DType::f32; }
  [[nodiscard]] std::string name() const { return spec.to_string() + " " + std::string(to_string(dtype)); }
};

/// Returns every codec of the build over every dtype, and behind topk(1%), topk(10%) and topk(100%); with `small`,
/// mostly f32.
[[nodiscard]] std::vector<Case> all_cases(bool small);

enum class Kind : std::uint8_t { plain, special, large, tiny, infinite, equal, extreme, not_a_number };

/// Returns Gaussian values as elements of `dtype`. The special kind has blocks of zeros, -0, equal values, denormals,
/// tiny and huge values, single spikes, NaN and Inf. Of the others only the last has NaN: values that f16 cannot hold;
/// denormals; one -Inf; equal magnitudes; runs of the largest value, of a smallest normal one among zeros, and of equal
/// magnitudes; and NaN alone.
[[nodiscard]] Bytes tensor(DType dtype, std::uint64_t count, unsigned seed, Kind kind = Kind::plain);

/// The words in device memory that kernels share: the step and the status.
class DeviceCall {
 public:
  explicit DeviceCall(const kernels::FrameCodec& codec);
  [[nodiscard]] const kernels::CallFields& fields() const { return fields_; }
  [[nodiscard]] kernels::DeviceStatus status() const;
  [[nodiscard]] std::uint32_t* step() const { return step_.as<std::uint32_t>(); }

 private:
  Memory step_{sizeof(std::uint32_t)};
  Memory status_{sizeof(kernels::DeviceStatus)};
  kernels::CallFields fields_;
};

/// The same words on the host.
struct HostCall {
  explicit HostCall(const kernels::FrameCodec& codec);
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;
  std::uint32_t step;
  kernels::DeviceStatus status{};
  kernels::CallFields fields;
};

inline constexpr std::uint32_t kStep = 41;
inline constexpr std::uint32_t kBucket = 7;

/// Returns the frame that the host makes of `values`.
[[nodiscard]] Bytes host_frame(const Case& c, const Bytes& values, DType dtype, std::uint32_t count,
                               std::uint32_t first_tile = 0, std::uint8_t hop = 0);

/// Compares frames of `c` byte for byte. A NaN made by a sum, which exact codecs keep, may have other bits, which
/// depend on the processor.
void same_frame(Check& check, const Case& c, const Bytes& got, const Bytes& wanted, const kernels::FramePlace& place,
                const std::string& what);

/// Returns the content of `memory`, and checks that nothing around it was written.
[[nodiscard]] Bytes read_intact(Check& check, const Memory& memory, const std::string& what);

// Parts of the check, one file each. `stream` is a stream of the device.
void check_comparison(Check& check);
void check_encode(Check& check, void* stream);
void check_decode(Check& check, void* stream);
void check_damaged(Check& check, void* stream);
void check_reduce(Check& check, void* stream);
void check_elementwise(Check& check, void* stream);
void check_two_streams(Check& check);

}  // namespace gradwire::gpu

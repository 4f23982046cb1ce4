#include "tests/gpu/kernel_jobs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "codec/registry.hpp"
#include "codec/tensor_list.hpp"
#include "tests/support/simulated_codecs.hpp"
#include "wire/frame.hpp"

namespace gradwire::gpu {

std::vector<Case> all_cases(bool small) {
  std::vector<Case> cases;
  for (const codec::CodecEntry& entry : codec::codecs()) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
      if (!small || !entry.lossy || dtype == DType::f32) {
        cases.push_back({{entry.id, 0}, dtype});
      }
    }
    for (const std::uint16_t k : {41, 410, 4096}) {
      if (!small || k == 41) {
        cases.push_back({{entry.id, k}, DType::f32});
      }
    }
    if (!small) {
      cases.push_back({{entry.id, 41}, DType::bf16});
      cases.push_back({{entry.id, 41}, DType::f64});
    }
  }
  // A quarter of the elements: the run of the indices' bits has more words than a warp has lanes.
  cases.push_back({CodecSpec::parse("topk(25%)+int8"), DType::f32});
  if (small) {
    cases.push_back({CodecSpec::parse("int8"), DType::f16});
    cases.push_back({CodecSpec::parse("int8"), DType::f64});
    cases.push_back({CodecSpec::parse("int4"), DType::bf16});
    cases.push_back({CodecSpec::parse("topk(1%)+int8"), DType::f16});
    cases.push_back({CodecSpec::parse("topk(1%)+exact"), DType::f64});
  }
  return cases;
}

namespace {

float special_value(std::uint64_t index, float gauss) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  switch (index / 128 % 14) {
    case 0: return 0.0F;
    case 1: return -0.0F;
    case 2: return 0.75F;
    case 3: return gauss * 1e-40F;
    case 4: return gauss * 1e-36F;
    case 5: return gauss * 1e36F;
    case 6: return index % 128 == 77 ? 3e38F : 0.0F;
    case 7: return index % 128 == 13 ? nan : gauss;
    case 8: return index % 128 == 127 ? -infinity : gauss;
    case 9: return index % 2 == 0 ? 1.0F : -1.0F;
    case 10: return gauss * 1e5F;
    case 11: return index % 128 == 0 ? -5.0F : gauss * 1e-6F;
    default: return gauss;
  }
}

float value_of_kind(Kind kind, std::uint64_t index, unsigned seed, float gauss) {
  switch (kind) {
    case Kind::plain: return gauss;
    case Kind::special: return special_value(index + std::uint64_t{seed % 14} * 128, gauss);
    case Kind::large: return gauss * 1e5F;
    case Kind::tiny: return gauss * 1e-40F;
    case Kind::infinite: return index % 4096 == 100 ? -std::numeric_limits<float>::infinity() : gauss;
    case Kind::equal: return std::copysign(0.7354127F, gauss);
    case Kind::not_a_number: return std::numeric_limits<float>::quiet_NaN();
    case Kind::extreme: break;
  }
  switch (index / 512 % 4) {
    case 0: return std::copysign(std::numeric_limits<float>::max(), gauss);
    case 1: return index % 128 == 5 ? std::numeric_limits<float>::min() : 0.0F;
    case 2: return std::copysign(0.7354127F, gauss);
    default: return gauss;
  }
}

}  // namespace

Bytes tensor(DType dtype, std::uint64_t count, unsigned seed, Kind kind) {
  std::mt19937_64 bits(seed * 7919ULL + 13);
  std::normal_distribution<float> gauss;
  std::vector<float> values(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    values[i] = value_of_kind(kind, i, seed, gauss(bits));
  }
  Bytes bytes(count * element_bytes(dtype));
  codec::TensorList list(dtype, codec::Working::f32);
  if (dtype == DType::f64) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const double value = static_cast<double>(values[i]) * (1 + 1e-12);  // f32 cannot represent it
      std::memcpy(bytes.data() + i * sizeof(double), &value, sizeof(double));
    }
    return bytes;
  }
  list.append(nullptr, bytes.data(), count);
  for (std::uint64_t i = 0; i < count; i += codec::kTileElements) {
    list.store(i, static_cast<std::uint32_t>(std::min(codec::kTileElements, count - i)), values.data() + i);
  }
  return bytes;
}

DeviceCall::DeviceCall(const kernels::FrameCodec& codec) {
  const std::uint32_t step = kStep;
  const kernels::DeviceStatus status{};
  step_.write(std::as_bytes(std::span(&step, 1)));
  status_.write(std::as_bytes(std::span(&status, 1)));
  fields_ = {.codec = codec,
             .bucket = kBucket,
             .step = step_.as<std::uint32_t>(),
             .status = status_.as<kernels::DeviceStatus>()};
}

kernels::DeviceStatus DeviceCall::status() const {
  kernels::DeviceStatus status;
  const Bytes bytes = status_.read();
  std::memcpy(&status, bytes.data(), sizeof status);
  return status;
}

HostCall::HostCall(const kernels::FrameCodec& codec)
    : step(kStep), fields{.codec = codec, .bucket = kBucket, .step = &step, .status = &status} {}

Bytes host_frame(const Case& c, const Bytes& values, DType dtype, std::uint32_t count, std::uint32_t first_tile,
                 std::uint8_t hop) {
  HostCall call(c.frame_codec());
  Bytes frame(c.codec().frame_bytes(count));
  kernels::EncodeJob job;
  job.call = call.fields;
  job.frame = {.bytes = reinterpret_cast<std::uint8_t*>(frame.data()),
               .count = count,
               .first_tile = first_tile,
               .hop = hop,
               .peer = 0};
  job.values = values.data();
  job.values_dtype = dtype;
  test::run_encode(job);
  return frame;
}

void same_frame(Check& check, const Case& c, const Bytes& got, const Bytes& wanted, const kernels::FramePlace& place,
                const std::string& what) {
  const bool holds_elements = c.spec.values == CodecSpec::parse("exact").values;  // including elements that topk keeps
  if (!holds_elements || got == wanted || got.size() != wanted.size()) {
    check.same_bytes(got, wanted, what);
    return;
  }
  check.same_bytes(std::span(got).first(wire::kHeaderBytes), std::span(wanted).first(wire::kHeaderBytes),
                   what + ", header");
  Bytes values[2];
  for (const bool mine : {false, true}) {
    HostCall call(c.frame_codec());
    Bytes frame = mine ? got : wanted;
    values[mine ? 1 : 0].resize(place.count * element_bytes(c.working()));
    kernels::DecodeJob job{.call = call.fields, .frame = place};
    job.frame.bytes = reinterpret_cast<std::uint8_t*>(frame.data());
    job.values = values[mine ? 1 : 0].data();
    job.values_dtype = c.working();
    test::run_decode(job);
    check.that(call.status.bad_frames == 0, what + ": a bad frame");
  }
  check.same_elements(c.working(), values[1], values[0], what + ", values");
}

Bytes read_intact(Check& check, const Memory& memory, const std::string& what) {
  bool intact = false;
  Bytes bytes = memory.read(&intact);
  check.that(intact, what + ": something was written outside of it");
  return bytes;
}

}  // namespace gradwire::gpu

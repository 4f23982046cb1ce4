// Checks encoding, decoding and damaged frames against the host.
#include <algorithm>
#include <random>
#include <utility>

#include "kernels/device/frame_series.hpp"
#include "kernels/device/operations.hpp"
#include "kernels/index_code.hpp"
#include "tests/gpu/kernel_jobs.hpp"
#include "tests/support/simulated_codecs.hpp"
#include "wire/frame.hpp"

namespace gradwire::gpu {
namespace {

std::vector<std::uint32_t> counts(const Check& check) {
  if (check.small()) {
    return {0, 1, 257, 4096 + 300};
  }
  return {0, 1, 31, 127, 128, 129, 255, 256, 257, 4095, 4096, 4097, 3 * 4096, 100'007};
}

std::string kind_name(Kind kind) {
  constexpr const char* kNames[] = {"",         ", special values",   ", large values",   ", tiny values",
                                    ", an Inf", ", equal magnitudes", ", extreme values", ", a NaN"};
  return kNames[static_cast<std::size_t>(kind)];
}

struct EncodeOptions {
  std::uint32_t count;
  Kind kind = Kind::plain;
  bool residual = true;
  double factor = 1;
  std::size_t shift = 0;  // number of elements past an aligned address
  std::uint32_t first_tile = 0;
  bool nothing = false;  // null instead of values
};

void encode_both(Check& check, void* stream, const Case& c, const EncodeOptions& o) {
  const std::string what = "encode " + c.name() + ", " + std::to_string(o.count) + " elements" + kind_name(o.kind) +
                           (o.residual ? ", residual" : "") + (o.nothing ? ", no values" : "") +
                           (o.factor != 1 ? ", factor" : "") + (o.shift != 0 ? ", unaligned" : "");
  const Bytes values = tensor(c.dtype, o.count, check.seed(), o.kind);
  const Bytes before = tensor(DType::f32, o.count, check.seed() + 1);
  HostCall host(c.frame_codec());
  Bytes wanted(c.codec().frame_bytes(o.count));
  std::vector<float> residual(o.count);
  if (o.count != 0) {
    std::memcpy(residual.data(), before.data(), before.size());
  }
  kernels::EncodeJob job{
      .call = host.fields,
      .frame = {.bytes = reinterpret_cast<std::uint8_t*>(wanted.data()), .count = o.count, .first_tile = o.first_tile},
      .values = o.nothing ? nullptr : values.data(),
      .values_dtype = c.dtype,
      .factor = o.factor,
      .residual = o.residual ? residual.data() : nullptr};
  test::run_encode(job);

  const DeviceCall call(c.frame_codec());
  const Memory device_values(values, o.shift * element_bytes(c.dtype));
  const Memory device_residual(before, o.shift * sizeof(float));
  const Memory frame(wanted.size());
  job.call = call.fields();
  job.frame.bytes = frame.frame();
  job.values = o.nothing ? nullptr : device_values.data();
  job.residual = o.residual ? device_residual.as<float>() : nullptr;
  kernels::encode(job, stream);
  same_frame(check, c, read_intact(check, frame, what), wanted, job.frame, what + ": frame");
  check.same_elements(DType::f32, read_intact(check, device_residual, what),
                      o.residual ? bytes_of(residual) : std::span<const std::byte>(before), what + ": residual");
  check.same_bytes(read_intact(check, device_values, what), values, what + ": values");
  check.that((call.status().nonfinite != 0) == (host.status.nonfinite != 0), what + ": the status on NaN and Inf");
}

struct DecodeOptions {
  std::uint32_t count;
  DType dtype;
  bool add = false;
  Kind kind = Kind::plain;
  std::size_t shift = 0;
  bool damaged = false;  // NaN of noise may then be noted or not
};

// Decodes `frame`, which may be damaged, on both.
void decode_both(Check& check, void* stream, const Case& c, const Bytes& frame, const DecodeOptions& o,
                 const std::string& what) {
  HostCall host(c.frame_codec());
  Bytes wanted = tensor(o.dtype, o.count, check.seed() + 2);
  const DeviceCall call(c.frame_codec());
  const Memory values(wanted, o.shift * element_bytes(o.dtype));
  Bytes host_bytes = frame;
  kernels::DecodeJob job{
      .call = host.fields,
      .frame = {.bytes = reinterpret_cast<std::uint8_t*>(host_bytes.data()), .count = o.count, .peer = 3},
      .values = wanted.data(),
      .values_dtype = o.dtype,
      .add = o.add};
  test::run_decode(job);
  const Memory device_frame(frame);
  job.call = call.fields();
  job.frame.bytes = device_frame.frame();
  job.values = values.data();
  kernels::decode(job, stream);
  check.same_elements(o.dtype, read_intact(check, values, what), wanted, what);
  check.same_bytes(read_intact(check, device_frame, what), frame, what + ": frame");
  const kernels::DeviceStatus status = call.status();
  check.that((status.bad_frames != 0) == (host.status.bad_frames != 0) && status.first_bad == host.status.first_bad,
             what + ": " + std::to_string(status.bad_frames) + " bad frames, the host found " +
                 std::to_string(host.status.bad_frames));
  check.that(o.damaged || (status.nonfinite != 0) == (host.status.nonfinite != 0),
             what + ": the status on NaN and Inf");
}

void decode_case(Check& check, void* stream, const Case& c, const DecodeOptions& o) {
  const std::string what = "decode " + c.name() + " to " + std::string(to_string(o.dtype)) + ", " +
                           std::to_string(o.count) + " elements" + (o.add ? ", added" : "") + kind_name(o.kind) +
                           (o.shift != 0 ? ", unaligned" : "");
  const Bytes frame = host_frame(c, tensor(c.dtype, o.count, check.seed() + 3, o.kind), c.dtype, o.count);
  if (!o.add) {
    decode_both(check, stream, c, frame, o, what);
    return;
  }
  // The host's run_decode overwrites, so its sum is computed here.
  HostCall host(c.frame_codec());
  const Bytes before = tensor(o.dtype, o.count, check.seed() + 2);
  Bytes wanted = before;
  const codec::Codec codec = c.codec();  // the reader refers to it
  codec::FrameReader reader(codec, {.count = o.count, .first_tile = 0, .bucket = kBucket, .step = kStep, .hop = 0},
                            false, frame, 3);
  for (std::uint64_t i = 0; i < o.count; i += codec::kTileElements) {
    reader.add(wanted.data() + i * element_bytes(o.dtype),
               static_cast<std::uint32_t>(std::min<std::uint64_t>(codec::kTileElements, o.count - i)));
  }
  const DeviceCall call(c.frame_codec());
  const Memory values(before, o.shift * element_bytes(o.dtype));
  const Memory device_frame(frame);
  kernels::decode({.call = call.fields(),
                   .frame = {.bytes = device_frame.frame(), .count = o.count, .peer = 3},
                   .values = values.data(),
                   .values_dtype = o.dtype,
                   .add = true},
                  stream);
  check.same_elements(o.dtype, read_intact(check, values, what), wanted, what);
}

// Encodes and decodes a series: four of five shards, of which the first is longer and the last ones are short and
// empty.
void series_both(Check& check, void* stream, const Case& c) {
  const std::string what = "series " + c.name();
  const std::uint32_t elements = 4 * 4096 + 300;
  const auto pitch = static_cast<std::uint32_t>((c.codec().frame_bytes(2 * 4096) + 15) / 16 * 16);
  const kernels::FrameSeries series{
      .frames = 4, .left_out = 1, .pitch = pitch, .each = 4096, .longer = 1, .tiles = 1, .begin = 0, .end = elements};
  const Bytes values = tensor(c.dtype, elements, check.seed());
  const Bytes before = tensor(c.dtype, elements, check.seed() + 2);
  HostCall host(c.frame_codec());
  Bytes wanted(std::size_t{4} * pitch);
  Bytes decoded = before;
  const auto place_in = [&](std::uint8_t* bytes) {
    return kernels::FramePlace{.bytes = bytes, .count = 2 * 4096, .first_tile = 3, .hop = 0, .peer = -1};
  };
  const auto bad = [&](std::uint32_t number, Bytes& frames) { frames[number * pitch + 24] ^= std::byte{1}; };  // a step
  std::vector<kernels::SeriesFrame> frames;
  for (std::uint32_t i = 0; i < 4; ++i) {
    frames.push_back(kernels::frame_of_series(place_in(reinterpret_cast<std::uint8_t*>(wanted.data())), series, i));
    const std::size_t at = frames[i].place.count == 0 ? 0 : frames[i].first * element_bytes(c.dtype);
    test::run_encode({.call = host.fields, .frame = frames[i].place, .values = &values[at], .values_dtype = c.dtype});
  }
  const DeviceCall call(c.frame_codec());
  const Memory device_values(values);
  const Memory device_frames(Bytes(wanted.size()));
  kernels::encode({.call = call.fields(),
                   .frame = place_in(device_frames.frame()),
                   .series = series,
                   .values = device_values.data(),
                   .values_dtype = c.dtype},
                  stream);
  check.same_bytes(read_intact(check, device_frames, what), wanted, what + ": frames");
  bad(2, wanted);  // of shard 3
  for (const kernels::SeriesFrame& frame : frames) {
    const std::size_t at = frame.place.count == 0 ? 0 : frame.first * element_bytes(c.dtype);
    test::run_decode({.call = host.fields, .frame = frame.place, .values = &decoded[at], .values_dtype = c.dtype});
  }
  const Memory damaged(wanted);
  const Memory result(before);
  kernels::decode({.call = call.fields(),
                   .frame = place_in(damaged.frame()),
                   .series = series,
                   .values = result.data(),
                   .values_dtype = c.dtype},
                  stream);
  check.same_elements(c.dtype, read_intact(check, result, what), decoded, what + ": values");
  check.that(call.status().first_bad == 4 && call.status().bad_frames == 1,
             what + ": the bad frame is that of shard 3");
}

// Repeats an index in a frame of topk, at each kind of place in the words of the run: the host refuses it.
void check_repeated_indices(Check& check, void* stream) {
  const Case c{CodecSpec::parse("topk(25%)+int8"), DType::f32};
  constexpr std::uint32_t kCount = 4096;
  constexpr std::uint32_t kSelected = 1024;
  std::vector<float> values(kCount, 0.01F);
  values[1] = 2;
  for (std::uint32_t j = 0; j + 1 < kSelected; ++j) {
    values[std::size_t{4} * j] = 1 + 1e-3F * static_cast<float>(j);
  }
  const Bytes frame = host_frame(c, {bytes_of(values).begin(), bytes_of(values).end()}, c.dtype, kCount);
  std::uint16_t index[kSelected];
  const auto* payload = reinterpret_cast<const std::uint8_t*>(frame.data()) + wire::kHeaderBytes;
  check.that(kernels::EliasFano::load(payload, kCount, kSelected, index), "the indices of the frame");
  const kernels::IndexCode code = kernels::index_code(kCount, kSelected);
  bool seen[3] = {};  // where the repeated index's bit is: in a word, the first of a word, the first of 32 words
  for (std::uint32_t j = 1; j < kSelected; ++j) {
    const std::uint32_t place = code.place(index[j - 1], j);
    const int kind = place % 1024 == 0 ? 2 : place % 32 == 0 ? 1 : 0;
    if (std::exchange(seen[kind], true)) {
      continue;
    }
    std::uint16_t repeated[kSelected];
    std::copy(index, index + kSelected, repeated);
    repeated[j] = repeated[j - 1];
    Bytes bad = frame;
    kernels::EliasFano::store(repeated, kCount, kSelected,
                              reinterpret_cast<std::uint8_t*>(bad.data()) + wire::kHeaderBytes);
    decode_both(check, stream, c, bad, {.count = kCount, .dtype = c.dtype, .damaged = true},
                "decode " + c.name() + " with index " + std::to_string(j) + " repeated");
  }
  check.that(seen[0] && seen[1] && seen[2], "repeated indices at three kinds of places");
}

}  // namespace

// Checks that a correct device passes: the bits of a computed NaN depend on the processor, 0x7fffffff on GPUs.
void check_comparison(Check& check) {
  for (const char* codec : {"exact", "topk(3%)+exact"}) {
    const Case c{CodecSpec::parse(codec), DType::f32};
    const std::uint32_t count = 300;
    Bytes values = tensor(DType::f32, count, check.seed());
    const std::uint32_t host_nan = 0x7fc00001;
    const std::uint32_t device_nan = 0x7fffffff;
    std::memcpy(values.data() + 40, &host_nan, sizeof host_nan);
    const Bytes wanted = host_frame(c, values, DType::f32, count);
    Bytes got = wanted;
    bool found = false;
    for (std::size_t at = wire::kHeaderBytes; at + sizeof host_nan <= got.size(); ++at) {
      if (std::memcmp(&got[at], &host_nan, sizeof host_nan) == 0) {
        std::memcpy(&got[at], &device_nan, sizeof device_nan);
        found = true;
      }
    }
    check.that(found, std::string(codec) + ": the frame holds no NaN to compare");
    same_frame(check, c, got, wanted, {.bytes = reinterpret_cast<std::uint8_t*>(got.data()), .count = count},
               std::string(codec) + ": a NaN with other bits");
  }
}

// Without a step it is 0, and nobody is told of a bad frame.
void check_no_words(Check& check, void* stream) {
  for (const Case& c : all_cases(true)) {
    const std::string what = c.name() + " without a step and a status";
    const std::uint32_t count = 300;
    const Bytes values = tensor(c.dtype, count, check.seed(), Kind::infinite);
    HostCall host(c.frame_codec());
    host.step = 0;
    Bytes wanted(c.codec().frame_bytes(count));
    test::run_encode({.call = host.fields,
                      .frame = {.bytes = reinterpret_cast<std::uint8_t*>(wanted.data()), .count = count},
                      .values = values.data(),
                      .values_dtype = c.dtype});
    const kernels::CallFields call{.codec = c.frame_codec(), .bucket = kBucket};
    const Memory device_values(values);
    const Memory frame(wanted.size());
    const kernels::FramePlace place{.bytes = frame.frame(), .count = count, .peer = 3};
    kernels::encode({.call = call, .frame = place, .values = device_values.data(), .values_dtype = c.dtype}, stream);
    check.same_bytes(read_intact(check, frame, what), wanted, what);
    wanted[24] ^= std::byte{1};
    frame.write(wanted);
    kernels::decode({.call = call, .frame = place, .values = device_values.data(), .values_dtype = c.dtype}, stream);
    const Bytes nothing = tensor(c.dtype, count, 1, Kind::not_a_number);
    check.same_elements(c.dtype, read_intact(check, device_values, what), nothing, what + ": a bad frame");
  }
}

void check_encode(Check& check, void* stream) {
  check.part("no step and no status", [&] { check_no_words(check, stream); });
  for (const Case& c : all_cases(check.small())) {
    check.part("encode " + c.name(), [&] {
      for (const std::uint32_t count : counts(check)) {
        encode_both(check, stream, c, {.count = count, .first_tile = count % 5});
        encode_both(check, stream, c, {.count = count, .residual = false});
      }
      const std::uint32_t many = check.small() ? 4096 : 3 * 4096 + 1000;
      encode_both(check, stream, c, {.count = many, .kind = Kind::special});
      encode_both(check, stream, c, {.count = many, .kind = Kind::special, .residual = false, .shift = 1});
      encode_both(check, stream, c, {.count = 4096 + 77, .factor = 0.3, .shift = 1});
      encode_both(check, stream, c, {.count = 300, .nothing = true});
      for (const Kind kind : {Kind::large, Kind::tiny, Kind::infinite, Kind::equal, Kind::extreme}) {
        encode_both(check, stream, c, {.count = 4096, .kind = kind, .residual = kind == Kind::extreme});
      }
    });
  }
}

void check_decode(Check& check, void* stream) {
  for (const Case& c : all_cases(check.small())) {
    check.part("decode " + c.name(), [&] {
      for (const std::uint32_t count : counts(check)) {
        decode_case(check, stream, c, {.count = count, .dtype = c.dtype});
        decode_case(check, stream, c, {.count = count, .dtype = c.working(), .add = true});
      }
      const std::uint32_t many = check.small() ? 4096 : 3 * 4096 + 1000;
      decode_case(check, stream, c, {.count = many, .dtype = c.dtype, .kind = Kind::special});
      decode_case(check, stream, c, {.count = many, .dtype = c.dtype, .kind = Kind::special, .shift = 1});
      decode_case(check, stream, c, {.count = many, .dtype = c.working(), .add = true, .kind = Kind::special});
      decode_case(check, stream, c, {.count = 4096, .dtype = c.dtype, .kind = Kind::large});
      decode_case(check, stream, c, {.count = 4096, .dtype = c.dtype, .kind = Kind::infinite});
      decode_case(check, stream, c, {.count = 300, .dtype = c.dtype, .kind = Kind::extreme});
      if (c.dtype == DType::f32) {  // which f16 cannot hold
        decode_case(check, stream, c, {.count = 4096, .dtype = DType::f16, .kind = Kind::large});
      }
      series_both(check, stream, c);
    });
  }
}

// Damages every byte of the header, and decodes payloads of noise: the result is NaN and a status, or that of the host;
// nothing outside is written.
void check_damaged(Check& check, void* stream) {
  std::mt19937_64 random(check.seed());
  check.part("repeated indices", [&] { check_repeated_indices(check, stream); });
  for (const Case& c : all_cases(check.small())) {
    check.part("damaged " + c.name(), [&] {
      const std::uint32_t count = 300;  // one tile: a bad tile is a bad frame
      const Bytes frame = host_frame(c, tensor(c.dtype, count, check.seed()), c.dtype, count);
      for (std::size_t byte = 0; byte < wire::kHeaderBytes; byte += check.small() ? 7 : 1) {
        Bytes bad = frame;
        bad[byte] ^= std::byte{0x10};
        decode_both(check, stream, c, bad, {.count = count, .dtype = c.dtype, .damaged = true},
                    "decode " + c.name() + " with bit 4 of header byte " + std::to_string(byte) + " turned");
      }
      Bytes empty = host_frame(c, {}, c.dtype, 0);
      empty[24] ^= std::byte{1};
      decode_both(check, stream, c, empty, {.count = 0, .dtype = c.dtype, .damaged = true},
                  "decode " + c.name() + " of no elements with another step");
      if (check.small() && c.spec.k == 1024) {
        return;  // noise names an element twice before all become NaN: the interpreter says that this is a race
      }
      Bytes noise = frame;
      for (std::size_t i = wire::kHeaderBytes; i < noise.size(); ++i) {
        noise[i] = static_cast<std::byte>(random());
      }
      decode_both(check, stream, c, noise, {.count = count, .dtype = c.dtype, .damaged = true},
                  "decode " + c.name() + " of noise");
    });
  }
}

}  // namespace gradwire::gpu

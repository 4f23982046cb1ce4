// Measures speed and error of every registered codec and of topk at two densities, on one thread, on f32 input: GB/s of
// input for each operation with a memcpy of the same bytes beside it, bits per element, and NMSE on four distributions.
// Of exact+zstd, whose speed depends on the values, it measures frames of 56 KiB of three kinds, and the link below
// which it wins.
//   bench_codec [--benchmark_filter=int8] [--benchmark_format=json] ...     (all flags of Google Benchmark)
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "codec/codec.hpp"
#include "codec/registry.hpp"
#include "tests/support/distributions.hpp"

namespace gradwire {
namespace {

constexpr std::uint32_t kElements = 4U << 20;                // 16 MiB of f32
constexpr std::uint32_t kFrame = 64 * codec::kTileElements;  // 1 MiB of f32 per frame, as in a pipelined collective
static_assert(kElements % kFrame == 0 && kFrame % codec::kTileElements == 0);

const std::vector<float>& input() {
  static const std::vector<float> values = test::draw(test::Distribution::lognormal_rows, kElements, 1);
  return values;
}

void encode_all(const codec::Codec& codec, bool checksum, const std::vector<float>& values, float* residual,
                std::vector<std::byte>& frames) {
  const std::uint64_t frame_bytes = codec.frame_bytes(kFrame);
  for (std::uint32_t first = 0; first < kElements; first += kFrame) {
    codec::FrameInfo info;
    info.count = kFrame;
    info.first_tile = first / codec::kTileElements;
    codec::FrameWriter writer(codec, info, checksum,
                              std::span(frames).subspan(first / kFrame * frame_bytes, frame_bytes));
    for (std::uint32_t i = first; i < first + kFrame; i += codec::kTileElements) {
      float* const kept = residual == nullptr ? nullptr : residual + i;
      writer.write(values.data() + i, kept, codec::kTileElements);
    }
    writer.finish();
  }
}

void decode_all(const codec::Codec& codec, bool checksum, bool add, const std::vector<std::byte>& frames,
                std::vector<float>& values) {
  const std::uint64_t frame_bytes = codec.frame_bytes(kFrame);
  for (std::uint32_t first = 0; first < kElements; first += kFrame) {
    codec::FrameInfo info;
    info.count = kFrame;
    info.first_tile = first / codec::kTileElements;
    codec::FrameReader reader(codec, info, checksum,
                              std::span(frames).subspan(first / kFrame * frame_bytes, frame_bytes), 0);
    for (std::uint32_t i = first; i < first + kFrame; i += codec::kTileElements) {
      add ? reader.add(values.data() + i, codec::kTileElements) : reader.read(values.data() + i, codec::kTileElements);
    }
  }
}

std::vector<std::byte> frames_for(const codec::Codec& codec) {
  return std::vector<std::byte>(kElements / kFrame * codec.frame_bytes(kFrame));
}

void report_speed(benchmark::State& state) {
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(state.iterations()) * kElements * sizeof(float) / 1e9,
                                              benchmark::Counter::kIsRate);
}

void bench_memcpy(benchmark::State& state) {
  const std::vector<float>& values = input();
  std::vector<float> out(kElements);
  for (auto _ : state) {
    std::memcpy(out.data(), values.data(), kElements * sizeof(float));
    benchmark::ClobberMemory();
  }
  report_speed(state);
}

void bench_encode(benchmark::State& state, CodecSpec spec, bool residual, bool checksum) {
  const codec::Codec codec(spec, DType::f32);
  const std::vector<float>& values = input();
  std::vector<std::byte> frames = frames_for(codec);
  std::vector<float> left(residual ? kElements : 0);
  for (auto _ : state) {
    encode_all(codec, checksum, values, residual ? left.data() : nullptr, frames);
    benchmark::ClobberMemory();
  }
  report_speed(state);
  state.counters["bits"] = 8.0 * static_cast<double>(codec.payload_bytes(kElements)) / kElements;
}

void bench_decode(benchmark::State& state, CodecSpec spec, bool add, bool checksum) {
  const codec::Codec codec(spec, DType::f32);
  std::vector<std::byte> frames = frames_for(codec);
  encode_all(codec, checksum, input(), nullptr, frames);
  std::vector<float> out(kElements);
  for (auto _ : state) {
    decode_all(codec, checksum, add, frames, out);
    benchmark::ClobberMemory();
  }
  report_speed(state);
}

// Measures round trips; the time is that of encode and decode together.
void bench_error(benchmark::State& state, CodecSpec spec) {
  const codec::Codec codec(spec, DType::f32);
  std::vector<std::byte> frames = frames_for(codec);
  std::vector<float> out(kElements);
  for (const test::Distribution distribution : test::kDistributions) {
    const std::vector<float> values = test::draw(distribution, kElements, 2);
    encode_all(codec, false, values, nullptr, frames);
    decode_all(codec, false, false, frames, out);
    state.counters["nmse_" + std::string(to_string(distribution))] = test::normalized_squared_error(values, out);
  }
  for (auto _ : state) {
    encode_all(codec, false, input(), nullptr, frames);
    decode_all(codec, false, false, frames, out);
    benchmark::ClobberMemory();
  }
  state.counters["bits"] = 8.0 * static_cast<double>(codec.payload_bytes(kElements)) / kElements;
  report_speed(state);
}

// Frames of 56 KiB of f32, or half of that of bf16.
class PackedFrames {
 public:
  PackedFrames(DType dtype, double zeros) : codec_(CodecSpec(codec::kPackedId), dtype) {
    const std::vector<float> normal = test::draw(test::Distribution::gauss, kCount, 3);
    const std::vector<float> lots = test::draw(test::Distribution::gauss, kCount, 4);
    std::vector<float> values = normal;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = std::abs(lots[i]) < zeros ? 0 : values[i] * 1e-3F;
    }
    values_.resize(kCount * element_bytes(dtype));
    for (std::size_t i = 0; i < values.size(); ++i) {  // the upper half of an f32 is a bf16
      std::memcpy(values_.data() + i * element_bytes(dtype),
                  reinterpret_cast<const std::byte*>(&values[i]) + 4 - element_bytes(dtype), element_bytes(dtype));
    }
  }

  void encode() {
    for (std::uint32_t frame = 0; frame < kFrames; ++frame) {
      codec::FrameWriter writer(codec_, info_, false, room_of(frame));
      over_tiles(frame, [&](std::byte* values, std::uint32_t count) { writer.write_verbatim(values, count); });
      writer.finish();
      sizes_[frame] = writer.bytes();
    }
  }
  void decode() {
    for (std::uint32_t frame = 0; frame < kFrames; ++frame) {
      codec::FrameReader reader(codec_, info_, false, room_of(frame).first(sizes_[frame]), 0, room_);
      over_tiles(frame, [&](std::byte* values, std::uint32_t count) { reader.read_verbatim(values, count); });
    }
  }
  [[nodiscard]] double bytes() const { return static_cast<double>(values_.size()); }
  [[nodiscard]] double ratio() const {
    return bytes() / static_cast<double>(std::accumulate(sizes_.begin(), sizes_.end(), std::uint64_t{0}));
  }

 private:
  static constexpr std::uint32_t kEach = 14'336;
  static constexpr std::uint32_t kFrames = 64;
  static constexpr std::uint32_t kCount = kEach * kFrames;

  [[nodiscard]] std::span<std::byte> room_of(std::uint32_t frame) {
    const std::uint64_t most = codec_.frame_bytes(kEach);
    return std::span(frames_).subspan(frame * most, most);
  }
  template <class Body>
  void over_tiles(std::uint32_t frame, Body body) {
    for (std::uint32_t first = 0; first < kEach; first += codec::kTileElements) {
      body(values_.data() + (frame * kEach + first) * element_bytes(codec_.dtype()),
           std::min(kEach - first, static_cast<std::uint32_t>(codec::kTileElements)));
    }
  }

  codec::Codec codec_;
  codec::FrameInfo info_{.count = kEach};
  std::vector<std::byte> values_;
  std::vector<std::byte> frames_ = std::vector<std::byte>(kFrames * codec_.frame_bytes(kEach));
  std::vector<std::byte> room_ = std::vector<std::byte>(codec_.room_bytes(kEach));
  std::array<std::uint64_t, kFrames> sizes_{};
};

// A core that packs and unpacks beside the link wins where both keep up with it; one that does nothing meanwhile wins
// below the rate at which the time that a byte saves on the link is that of packing and unpacking it.
void bench_packed(benchmark::State& state, DType dtype, double zeros, bool encodes) {
  PackedFrames frames(dtype, zeros);
  frames.encode();
  double seconds[2] = {1, 1};
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    frames.encode();
    const auto middle = std::chrono::steady_clock::now();
    frames.decode();
    seconds[0] = std::min(seconds[0], std::chrono::duration<double>(middle - begin).count());
    seconds[1] = std::min(seconds[1], std::chrono::duration<double>(std::chrono::steady_clock::now() - middle).count());
  }
  for (auto _ : state) {
    encodes ? frames.encode() : frames.decode();
    benchmark::ClobberMemory();
  }
  const double saved = frames.bytes() * (1 - 1 / frames.ratio());
  state.counters["MB/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * frames.bytes() / 1e6, benchmark::Counter::kIsRate);
  state.counters["ratio"] = frames.ratio();
  state.counters["wins_below_Gbit/s"] = 8e-9 * saved / (seconds[0] + seconds[1]);
}

void register_packed() {
  constexpr double kMedian = 0.6745;  // of |x|, so half of the elements become 0
  const auto add = [](const std::string& kind, DType dtype, double zeros) {
    for (const bool encodes : {true, false}) {
      benchmark::RegisterBenchmark(("exact+zstd/" + kind + (encodes ? "/encode" : "/decode")).c_str(), bench_packed,
                                   dtype, zeros, encodes)
          ->Unit(benchmark::kMillisecond);
    }
  };
  add("f32", DType::f32, 0);
  add("f32_half_zeros", DType::f32, kMedian);
  add("bf16", DType::bf16, 0);
}

template <class Function, class... Arguments>
void add_benchmark(const std::string& name, Function function, Arguments... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), function, arguments...)->Unit(benchmark::kMillisecond);
}

void register_codec(CodecSpec spec) {
  const std::string name = spec.to_string();
  add_benchmark("memcpy/beside_" + name, bench_memcpy);
  add_benchmark(name + "/encode", bench_encode, spec, false, false);
  add_benchmark(name + "/encode_crc", bench_encode, spec, false, true);
  add_benchmark(name + "/encode_residual", bench_encode, spec, true, false);
  add_benchmark(name + "/decode", bench_decode, spec, false, false);
  add_benchmark(name + "/decode_add", bench_decode, spec, true, false);
  add_benchmark(name + "/decode_add_crc", bench_decode, spec, true, true);
  add_benchmark(name + "/round_trip", bench_error, spec);
}

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) {
  benchmark::AddCustomContext("simd", std::string(gradwire::codec::active_instruction_set().name));
  for (const gradwire::codec::CodecEntry& entry : gradwire::codec::codecs()) {
    gradwire::register_codec({entry.id, 0});
  }
  for (const char* sparse : {"topk(1%)+int8", "topk(10%)+int8"}) {
    gradwire::register_codec(gradwire::CodecSpec::parse(sparse));
  }
  gradwire::register_packed();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

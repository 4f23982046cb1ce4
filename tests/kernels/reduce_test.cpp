// Compares the owner's kernel with the host's lanes: frames are read and added in rank order together with the uncoded
// own part, divided, and encoded with the owner's residual.
#include "device_support.hpp"
#include "gradwire/error.hpp"
#include "simt_emulator.hpp"

namespace gradwire {
namespace {

using namespace test;

struct SumCase {
  std::size_t count = 300;
  int ranks = 3;
  int own = 1;
  Kind kind = Kind::plain;
  double factor = 1;
  double divisor = 1;
  bool own_residual = true;
  bool owner_residual = true;
  std::size_t shift = 0;
  std::uint32_t first_tile = 5;
  bool device_divisor = false;
};

// The inputs of one call, for both sides.
struct Inputs {
  Inputs(const codec::Codec& first, const SumCase& s) : own(as_tensor(first.dtype(), inputs(s.count, 50, s.kind))) {
    for (int rank = 0; rank < s.ranks; ++rank) {
      const Values values(first.working(), inputs(s.count, static_cast<unsigned>(rank), s.kind));
      Frame frame;
      frame.bytes.resize(first.frame_bytes(s.count));
      codec::FrameWriter writer(first, info_for(s.count, s.first_tile), false, frame.bytes);
      for_each_tile(s.count, [&](std::size_t i, std::uint32_t n) { writer.write(values.at(i), nullptr, n); });
      frame.nonfinite = writer.finish();
      frames.push_back(std::move(frame));
    }
    own_residual = gauss(s.count, 60, 0.002);
    for (std::size_t i = 0; i < std::min<std::size_t>(4096, s.count); ++i) {
      own_residual[i] = s.count > 4096 ? -0.0F : own_residual[i];  // -0 does not change the own part
    }
    owner_residual = gauss(s.count, 61, 0.002);
  }
  std::vector<Frame> frames;
  std::vector<std::byte> own;
  std::vector<float> own_residual;
  std::vector<float> owner_residual;
};

// Reduces like src/exchange/host/lane_compute.cpp. Returns the sum, divided.
Values host_sum(const codec::Codec& codec, const SumCase& s, Inputs& in) {
  Values own = working_values(codec, codec.dtype(), in.own);
  if (s.factor != 1 && s.count != 0) {
    codec::multiply(codec.working(), own.at(0), s.factor, own.at(0), s.count);
  }
  for_each_tile(s.count, [&](std::size_t i, std::uint32_t n) {
    float* residual = in.own_residual.data() + i;
    for (std::uint32_t j = 0; s.own_residual && j < n; ++j) {
      if (residual[j] != 0) {
        own.is_f64() ? own.set(i + j, own[i + j] + static_cast<double>(residual[j]))
                     : own.set(i + j, static_cast<float>(own[i + j]) + residual[j]);
        residual[j] = 0;
      }
    }
  });
  Values sum(codec.working(), s.count);
  for (int rank = 0; rank < s.ranks; ++rank) {
    const auto& frame = in.frames[static_cast<std::size_t>(rank)].bytes;
    std::optional<codec::FrameReader> reader;
    if (rank != s.own) {
      reader.emplace(codec, info_for(s.count, s.first_tile), false, frame, rank);
    }
    for_each_tile(s.count, [&](std::size_t i, std::uint32_t n) {
      if (reader) {
        rank == 0 ? reader->read(sum.at(i), n) : reader->add(sum.at(i), n);
      } else if (rank == 0) {
        std::memcpy(sum.at(i), own.at(i), n * codec.working_bytes());
      } else {
        codec::add(codec.working(), sum.at(i), own.at(i), n);
      }
    });
  }
  if (s.divisor != 1 && s.count != 0) {
    codec::divide(codec.working(), sum.at(0), s.divisor, s.count);
  }
  return sum;
}

// The job of both sides, except for its output.
struct Device {
  Device(const codec::Codec& first, const SumCase& s, const Inputs& in)
      : call(first),
        pitch((first.frame_bytes(s.count) + 15) / 16 * 16),
        frames(pitch * static_cast<std::size_t>(s.ranks)),
        own(in.own, s.shift * element_bytes(first.dtype())),
        own_residual(in.own_residual, s.shift * 4),
        owner_residual(in.owner_residual, s.shift * 4),
        divisor(s.divisor) {
    for (int rank = 0; rank < s.ranks; ++rank) {
      const std::vector<std::byte>& bytes = in.frames[static_cast<std::size_t>(rank)].bytes;
      if (rank != s.own) {
        std::copy(bytes.begin(), bytes.end(), frame_of(rank, s));
      }
    }
    job.call = call.fields;
    job.count = static_cast<std::uint32_t>(s.count);
    job.first_tile = s.first_tile;
    job.frames = frames.frame();
    job.pitch = static_cast<std::uint32_t>(pitch);
    job.ranks = s.ranks;
    job.own_rank = s.own;
    job.own = own.data();
    job.own_dtype = first.dtype();
    job.factor = s.factor;
    job.own_residual = s.own_residual ? own_residual.as<float>() : nullptr;
    job.divisor = s.device_divisor ? 77 : s.divisor;
    job.device_divisor = s.device_divisor ? &divisor : nullptr;
  }
  // Returns the frame of a rank, which must not be the own rank.
  std::byte* frame_of(int rank, const SumCase& s) {
    return frames.data() + pitch * static_cast<std::size_t>(rank - (s.own >= 0 && rank > s.own ? 1 : 0));
  }
  Call call;
  std::size_t pitch;
  Memory frames;
  Memory own;
  Memory own_residual;
  Memory owner_residual;
  double divisor;
  kernels::ReduceJob job;
};

std::string trace(const SumCase& s) {
  return std::to_string(s.count) + " elements of " + std::to_string(s.ranks) + " ranks, own " + std::to_string(s.own) +
         ", shift " + std::to_string(s.shift) + ", kind " + std::to_string(static_cast<int>(s.kind));
}

void check_encoded(const codec::Codec& first, const codec::Codec& second, const SumCase& s) {
  SCOPED_TRACE(trace(s));
  Inputs in(first, s);
  Device device(first, s, in);
  Values sum = host_sum(first, s, in);
  std::vector<std::byte> wanted(second.frame_bytes(s.count));
  codec::FrameInfo info = info_for(s.count, s.first_tile);
  info.hop = 1;
  codec::FrameWriter writer(second, info, false, wanted);
  for_each_tile(s.count, [&](std::size_t i, std::uint32_t n) {
    writer.write(sum.at(i), s.owner_residual ? in.owner_residual.data() + i : nullptr, n);
  });
  const bool nonfinite = writer.finish();

  Memory out(second.frame_bytes(s.count));
  device.job.second = frame_codec(second);
  device.job.out = out.frame();
  device.job.owner_residual = s.owner_residual ? device.owner_residual.as<float>() : nullptr;
  kernels::reduce(device.job, nullptr);
  EXPECT_EQ(difference(out.bytes(), wanted), "");
  EXPECT_EQ(difference(device.owner_residual.bytes(), Memory(in.owner_residual).bytes()), "") << "owner residual";
  EXPECT_EQ(difference(device.own_residual.bytes(), Memory(in.own_residual).bytes()), "") << "own residual";
  EXPECT_EQ(difference(device.own.bytes(), in.own), "") << "own";
  EXPECT_EQ(device.call.status.nonfinite != 0, nonfinite);
  EXPECT_EQ(device.call.status.bad_frames, 0U);
}

void check_stored(const codec::Codec& first, const SumCase& s, DType dtype, bool in_place) {
  SCOPED_TRACE(trace(s));
  Inputs in(first, s);
  Device device(first, s, in);
  const Values sum = host_sum(first, s, in);
  std::vector<std::byte> wanted(s.count * element_bytes(dtype));
  codec::TensorList list(dtype, first.working());
  list.append(nullptr, wanted.data(), s.count);
  for_each_tile(s.count, [&](std::size_t i, std::uint32_t n) { list.store(i, n, sum.at(i)); });

  Memory result(in_place ? 0 : wanted.size(), s.shift * element_bytes(dtype));
  Memory& to = in_place ? device.own : result;
  device.job.result = to.data();
  device.job.result_dtype = dtype;
  kernels::reduce(device.job, nullptr);
  EXPECT_EQ(difference(dtype, to.bytes(), wanted), "");
  EXPECT_EQ(device.call.status.nonfinite != 0, !codec::all_finite(dtype, wanted.data(), s.count) ||
                                                   std::any_of(in.frames.begin(), in.frames.end(), [&](const Frame& f) {
                                                     return &f != &in.frames[static_cast<std::size_t>(s.own)] &&
                                                            f.nonfinite;
                                                   }));
}

class Reduce : public ::testing::TestWithParam<Case> {};

TEST_P(Reduce, EncodesTheSumLikeTheHost) {
  const codec::Codec codec = GetParam().codec();
  for (const std::size_t count : {0, 1, 129, 257, 4096 + 300}) {
    check_encoded(codec, codec, {.count = count, .divisor = 3});
  }
}

TEST_P(Reduce, PassesSpecialValuesOnLikeTheHost) {
  const codec::Codec codec = GetParam().codec();
  check_encoded(codec, codec,
                {.count = 2 * 4096 + 1000, .own = 0, .kind = Kind::special, .factor = 1.5, .divisor = 2.5, .shift = 1});
}

TEST_P(Reduce, StoresTheSumLikeTheHost) {
  const codec::Codec codec = GetParam().codec();
  const DType dtype = GetParam().dtype;
  check_stored(codec, {.count = 4096 + 300, .divisor = 3}, dtype, false);
  check_stored(codec, {.count = 300, .own = 2, .own_residual = false}, dtype, true);
}

INSTANTIATE_TEST_SUITE_P(Codecs, Reduce, ::testing::ValuesIn(device_cases()), case_name);

// Any codec of the first hop is combined with any of the second.
TEST(ReduceMixed, HopsOfDifferentCodecs) {
  const std::vector<std::string> specs = {"exact", "bf16", "fp16",          "int8",           "fp8",           "int4",
                                          "int2",  "sign", "topk(1%)+int8", "topk(10%)+int2", "topk(1%)+exact"};
  for (const std::string& first : specs) {
    for (const std::string& second : specs) {
      SCOPED_TRACE(testing::Message() << first << " then " << second);
      check_encoded(codec::Codec(CodecSpec::parse(first), DType::f32),
                    codec::Codec(CodecSpec::parse(second), DType::f32), {.count = 700, .own = 2, .divisor = 3});
    }
  }
  const codec::Codec selected(CodecSpec::parse("topk(1%)+exact"), DType::f64);
  check_encoded(selected, codec::Codec(CodecSpec::parse("exact"), DType::f64), {.count = 5000, .divisor = 3});
}

// A sum inside nodes is f32 for every tensor, and the result's frames have the type of the tensor. Mutation tried: the
// types must be equal.
TEST(ReduceMixed, FramesOfTwoTypesTakeTheKernelOfOneCodec) {
  for (const std::string spec : {"bf16", "fp16", "int8", "fp8", "int4", "int2", "sign", "exact", "topk(1%)+int8"}) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      SCOPED_TRACE(testing::Message() << spec << " of " << to_string(dtype));
      const CodecSpec codec = CodecSpec::parse(spec);
      const codec::Codec first(codec, DType::f32);
      const codec::Codec second(codec, dtype);
      const SumCase s{.count = 4096 + 300, .divisor = 3};
      check_encoded(first, second, s);
      Device device(first, s, Inputs(first, s));
      Memory out(second.frame_bytes(s.count));
      device.job.second = frame_codec(second);
      device.job.out = out.frame();
      const emulator::LaunchNotes notes;  // from here on kernels do not run
      kernels::reduce(device.job, nullptr);
      const bool one = codec != CodecSpec::exact() && codec.k == 0;
      EXPECT_EQ(notes.kernels().back(), one ? "reduce_frames" : "reduce_mixed");
    }
  }
}

TEST(ReduceJobs, ManyRanks) {
  const codec::Codec codec(CodecSpec::parse("int8"), DType::f32);
  check_encoded(codec, codec, {.count = 300, .ranks = 70, .own = 69, .divisor = 70});
  check_encoded(codec, codec, {.count = 300, .ranks = 64, .own = 33, .divisor = 64});
}

TEST(ReduceJobs, TheDivisorMayLieInDeviceMemory) {
  const codec::Codec codec(CodecSpec::parse("int8"), DType::f32);
  check_encoded(codec, codec, {.count = 300, .divisor = 7.3, .device_divisor = true});
}

TEST(ReduceJobs, RefuseWhatNoKernelCanDo) {
  const codec::Codec wide(CodecSpec::parse("exact"), DType::f64);
  const codec::Codec int8(CodecSpec::parse("int8"), DType::f64);
  Device device(int8, {}, Inputs(int8, {}));
  device.job.call.codec = frame_codec(wide);
  device.job.second = frame_codec(int8);
  device.job.out = device.frames.frame();
  EXPECT_THROW(kernels::reduce(device.job, nullptr), Error);  // the sum is in f64, the encoder in f32
  device.job = {};
  device.job.ranks = kernels::kMaxReduceInputs + 1;
  EXPECT_THROW(kernels::reduce(device.job, nullptr), Error);
  device.job.ranks = 4;
  device.job.pitch = 1U << 31;
  EXPECT_THROW(kernels::reduce(device.job, nullptr), Error);
  device.job.pitch = 0;
  device.job.own_rank = 4;
  EXPECT_THROW(kernels::reduce(device.job, nullptr), Error);
  device.job.own_rank = -1;
  device.job.ranks = 1;
  device.job.call.codec.id = 99;
  EXPECT_THROW(kernels::reduce(device.job, nullptr), Error);
}

// A damaged frame, alone or among good ones, makes the sum NaN.
TEST(ReduceBadFrames, MakeTheSumNan) {
  for (const char* spec : {"int8", "topk(1%)+int8"}) {
    for (const bool indices : {false, true}) {
      const codec::Codec codec(CodecSpec::parse(spec), DType::f32);
      if (indices && codec.spec().k == 0) {
        continue;
      }
      const SumCase s{.count = 4096 + 300, .ranks = 4, .own = 1};
      const Inputs in(codec, s);
      Device device(codec, s, in);
      device.frame_of(2, s)[indices ? wire::kHeaderBytes + 1 : 20] ^= std::byte{0xFF};
      Memory result(s.count * 4);
      device.job.result = result.data();
      kernels::reduce(device.job, nullptr);
      const auto values = result.to<float>();
      const std::size_t bad = indices ? 4096 : s.count;  // indices apply to one tile
      for (std::size_t i = 0; i < s.count; ++i) {
        ASSERT_EQ(std::isnan(values[i]), i < bad) << spec << " " << i;
      }
      EXPECT_EQ(device.call.status.bad_frames, 1U);
      EXPECT_EQ(device.call.status.first_bad, 3U);
      EXPECT_NE(device.call.status.nonfinite, 0U);
    }
  }
}

}  // namespace
}  // namespace gradwire

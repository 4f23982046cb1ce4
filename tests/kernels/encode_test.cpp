// Compares emulated encoding with the host's frame writer: header, payload and residual, byte for byte.
#include <algorithm>
#include <limits>
#include <vector>

#include "device_support.hpp"
#include "kernels/device/status.hpp"

namespace gradwire {
namespace {

using namespace test;

constexpr std::size_t kEncodeCounts[] = {0, 1, 127, 128, 129, 255, 256, 257, 3840, 4095, 4096, 4097, 2 * 4096 + 300};

class Encode : public ::testing::TestWithParam<Case> {};

struct Options {
  std::size_t count;
  Kind kind = Kind::plain;
  bool residual = true;
  double factor = 1;
  std::size_t shift = 0;  // shift of values and residual
  DType values_dtype = DType::f32;
  std::uint32_t first_tile = 0;
};

// Returns the frame that FrameWriter encodes from the tensor.
Frame host_frame(const codec::Codec& codec, const Options& o, const std::vector<std::byte>& tensor,
                 std::vector<float>* residual) {
  const bool verbatim = !codec.lossy() && codec.dtype() == o.values_dtype && o.factor == 1 && residual == nullptr;
  Frame frame;
  frame.bytes.resize(codec.frame_bytes(o.count));
  codec::FrameWriter writer(codec, info_for(o.count, o.first_tile), false, frame.bytes);
  Values values = working_values(codec, o.values_dtype, tensor);
  for_each_tile(o.count, [&](std::size_t i, std::uint32_t n) {
    if (verbatim) {
      writer.write_verbatim(tensor.data() + i * element_bytes(o.values_dtype), n);
      return;
    }
    if (o.factor != 1) {
      codec::multiply(codec.working(), values.at(i), o.factor, values.at(i), n);
    }
    writer.write(values.at(i), residual == nullptr ? nullptr : residual->data() + i, n);
  });
  frame.nonfinite = writer.finish();
  return frame;
}

void check(const Case& c, const Options& o) {
  SCOPED_TRACE(testing::Message() << o.count << " elements, shift " << o.shift << ", residual " << o.residual
                                  << ", factor " << o.factor << ", " << to_string(o.values_dtype) << ", kind "
                                  << static_cast<int>(o.kind));
  const codec::Codec codec = c.codec();
  const std::vector<std::byte> tensor = as_tensor(o.values_dtype, inputs(o.count, 7, o.kind));
  std::vector<float> residual = gauss(o.count, 8, 0.003);
  Memory values(tensor, o.shift * element_bytes(o.values_dtype));
  Memory kept(residual, o.shift * sizeof(float));
  const Frame wanted = host_frame(codec, o, tensor, o.residual ? &residual : nullptr);

  Memory frame(codec.frame_bytes(o.count));
  Call call(codec);
  kernels::EncodeJob job;
  job.call = call.fields;
  job.frame = place_of(frame, o.count, o.first_tile);
  job.values = values.data();
  job.values_dtype = o.values_dtype;
  job.factor = o.factor;
  job.residual = o.residual ? kept.as<float>() : nullptr;
  kernels::encode(job, nullptr);

  EXPECT_EQ(difference(frame.bytes(), wanted.bytes), "");
  EXPECT_EQ(difference(kept.bytes(), Memory(residual).bytes()), "") << "residual";
  EXPECT_EQ(difference(values.bytes(), tensor), "") << "values";
  EXPECT_EQ(call.status.nonfinite != 0, wanted.nonfinite);
  EXPECT_EQ(call.status.bad_frames, 0U);
}

TEST_P(Encode, EqualsTheHostAtEveryBorder) {
  for (const std::size_t count : kEncodeCounts) {
    check(GetParam(), {.count = count, .values_dtype = GetParam().dtype});
  }
}

TEST_P(Encode, EqualsTheHostOnSpecialValues) {
  const std::size_t count = 3 * 4096 + 1000;  // every recipe in both halves of a strip
  check(GetParam(), {.count = count, .kind = Kind::special, .values_dtype = GetParam().dtype});
  check(GetParam(),
        {.count = count, .kind = Kind::special, .residual = false, .shift = 1, .values_dtype = GetParam().dtype});
}

TEST_P(Encode, TakesAnyAddressFactorAndTile) {
  for (const std::size_t shift : {1, 2}) {
    check(GetParam(),
          {.count = 4096 + 300, .factor = 0.3, .shift = shift, .values_dtype = GetParam().dtype, .first_tile = 9});
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, Encode, ::testing::ValuesIn(device_cases()), case_name);

TEST(EncodeValues, OfEveryDtype) {
  for (const DType dtype : kDTypes) {
    check({codec::find_codec("int8"), DType::f32}, {.count = 4096 + 77, .kind = Kind::special, .values_dtype = dtype});
    check({codec::find_codec("int8"), DType::f32}, {.count = 300, .factor = 1.7, .shift = 1, .values_dtype = dtype});
  }
}

TEST(EncodeValues, NoneAreZeros) {
  const codec::Codec codec({codec::find_codec("int8")->id, 0}, DType::f32);
  std::vector<float> residual = gauss(5000, 3);
  Values zeros(codec.working(), residual.size());
  Memory kept(residual);
  const Frame wanted = encode(codec, zeros, &residual, false);
  Memory frame(codec.frame_bytes(residual.size()));
  Call call(codec);
  kernels::encode(
      {.call = call.fields, .frame = place_of(frame, residual.size()), .values = nullptr, .residual = kept.as<float>()},
      nullptr);
  EXPECT_EQ(difference(frame.bytes(), wanted.bytes), "");
  EXPECT_EQ(difference(kept.bytes(), Memory(residual).bytes()), "");
}

TEST(EncodeValues, ManyTilesAndAStepThatLivesInMemory) {
  const codec::Codec codec({codec::find_codec("int8")->id, 0}, DType::f32);
  const std::vector<float> values = gauss(100'007, 5);
  const Frame wanted = encode(codec, Values(codec.working(), values), nullptr, false);
  Memory memory(values);
  Memory frame(codec.frame_bytes(values.size()));
  Call call(codec);
  call.step -= 1;
  kernels::advance_step(&call.step, nullptr);
  kernels::encode({.call = call.fields, .frame = place_of(frame, values.size()), .values = memory.data()}, nullptr);
  EXPECT_EQ(difference(frame.bytes(), wanted.bytes), "");
}

// The last bit of these sums, and with it the scale, shows the order of the additions: over the elements of a partial
// sum, and in the tree over partial sums.
TEST(EncodeSums, RoundInTheOrderOfTheFormat) {
  for (const auto& [second, third] : std::vector<std::pair<std::size_t, std::size_t>>{{1, 17}, {32, 64}}) {
    std::vector<float> values(256);
    values[0] = 1.0F + 0x1p-8F;  // halfway between two scales
    values[second] = 0x1p-24F;   // alone it is lost beside values[0],
    values[third] = 0x1p-25F;    // but not together with this one
    for (const std::uint16_t k : {0, 4096}) {
      const codec::Codec codec({codec::find_codec("sign")->id, k}, DType::f32);
      Memory memory(values);
      Memory frame(codec.frame_bytes(values.size()));
      Call call(codec);
      kernels::encode({.call = call.fields, .frame = place_of(frame, values.size()), .values = memory.data()}, nullptr);
      const Frame wanted = encode(codec, Values(codec.working(), values), nullptr, false);
      EXPECT_EQ(difference(frame.bytes(), wanted.bytes), "") << second << " " << k;
    }
  }
}

// The second block has the NaN. Mutations tried: the note goes to the status either way; all blocks note in one word.
TEST(EncodeNan, IsNotedInAWordOfTheBlockAndInTheFrame) {
  const codec::Codec codec({codec::find_codec("int8")->id, 0}, DType::f32);
  std::vector<float> numbers(5000, 1.0F);
  numbers[4100] = std::numeric_limits<float>::quiet_NaN();
  Memory values(numbers);
  Memory frame(codec.frame_bytes(numbers.size()));
  Memory out(numbers.size() * sizeof(float));
  for (const bool decodes : {false, true}) {
    Call call(codec);
    std::vector<std::uint32_t> notes(kernels::kNoteWords);
    call.fields.nonfinite = notes.data();
    const kernels::FramePlace place = place_of(frame, numbers.size());
    decodes ? kernels::decode({.call = call.fields, .frame = place, .values = out.data()}, nullptr)
            : kernels::encode({.call = call.fields, .frame = place, .values = values.data()}, nullptr);
    EXPECT_EQ(notes[decodes ? 0 : 1], 1U) << "decoders note what the header says, in its block";
    EXPECT_EQ(std::count(notes.begin(), notes.end(), 0U), kernels::kNoteWords - 1);
    EXPECT_EQ(call.status.nonfinite, 0U) << decodes;
    EXPECT_EQ(call.status.bad_frames, 0U);
    std::uint32_t steps = 6;
    kernels::count_nonfinite(notes.data(), &steps, nullptr);
    kernels::count_nonfinite(notes.data(), &steps, nullptr);
    EXPECT_EQ(std::count(notes.begin(), notes.end(), 0U), kernels::kNoteWords);
    EXPECT_EQ(steps, 7U);
  }
}

// Every pattern of 16 bits, NaN with every payload, passes unchanged into the frame and out of it, and between buckets.
TEST(EncodeVerbatim, KeepsThePayloadOfNan) {
  std::vector<std::uint16_t> patterns(std::size_t{1} << 16);
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    patterns[i] = static_cast<std::uint16_t>(i);
  }
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const codec::Codec codec({codec::find_codec("exact")->id, 0}, dtype);
    Memory values(patterns);
    const std::vector<std::byte> tensor = values.bytes();
    const Frame wanted = host_frame(codec, {.count = patterns.size(), .values_dtype = dtype}, tensor, nullptr);
    Memory frame(wanted.bytes.size());
    Call call(codec);
    kernels::encode({.call = call.fields,
                     .frame = place_of(frame, patterns.size()),
                     .values = values.data(),
                     .values_dtype = dtype},
                    nullptr);
    EXPECT_EQ(difference(frame.bytes(), wanted.bytes), "");
    EXPECT_NE(call.status.nonfinite, 0U);
    Memory out(tensor.size());
    kernels::decode(
        {.call = call.fields, .frame = place_of(frame, patterns.size()), .values = out.data(), .values_dtype = dtype},
        nullptr);
    EXPECT_EQ(difference(out.bytes(), tensor), "");
    Memory run(tensor.size());
    const std::vector<kernels::CopyPiece> piece = {{values.data(), patterns.size(), 0}};
    kernels::gather(piece, dtype, run.data(), dtype, nullptr);
    EXPECT_EQ(difference(run.bytes(), tensor), "");
  }
}

}  // namespace
}  // namespace gradwire

// Tests jobs of several frames: each frame is the one that a job of its own makes or reads, and nothing between the
// frames and the elements is touched.
#include "device_support.hpp"
#include "kernels/device/frame_series.hpp"

namespace gradwire {
namespace {

using namespace test;

constexpr std::uint32_t kShards = 4;
constexpr std::uint32_t kLeftOut = 1;
constexpr std::uint32_t kTile = 4096;
constexpr std::uint32_t kCount = 9 * kTile + 300;  // shards of 3, 3, 2 and 2 tiles, of which the last one is short

class Series : public ::testing::TestWithParam<Case> {
 protected:
  /// Chunks of `most` tiles that begin `begin` tiles into their shards.
  Series() : codec_(GetParam().codec()) {}

  void lay(std::uint32_t begin, std::uint32_t most) {
    place_ = {.bytes = nullptr, .count = most * kTile, .first_tile = begin, .hop = 0, .peer = -1};
    series_ = {.frames = kShards - 1,
               .left_out = kLeftOut,
               .pitch = static_cast<std::uint32_t>((codec_.frame_bytes(place_.count) + 63) / 64 * 64),
               .each = 2 * kTile,
               .longer = 2,
               .tiles = 2,
               .begin = begin * kTile,
               .end = kCount};
  }
  [[nodiscard]] DType dtype() const { return GetParam().dtype; }
  [[nodiscard]] std::size_t element() const { return element_bytes(dtype()); }

  codec::Codec codec_;
  kernels::FramePlace place_;
  kernels::FrameSeries series_;
};

// Mutations tried: the shard that is left out is not counted; headers do not count the longer shards; all blocks fill
// the first frame.
TEST_P(Series, EncodeLikeJobsOfOneFrame) {
  for (const auto& [begin, most] : {std::pair{0U, 3U}, std::pair{1U, 1U}, std::pair{1U, 2U}}) {
    lay(begin, most);
    const std::vector<std::byte> tensor = as_tensor(dtype(), inputs(kCount, 7, Kind::special));
    const std::vector<float> residual = gauss(kCount, 8, 0.003);
    Memory values(tensor);
    Memory kept(residual);
    Memory kept_singly(residual);
    Memory frames(series_.frames * series_.pitch);
    Memory frames_singly(series_.frames * series_.pitch);
    Call call(codec_);
    Call singly(codec_);
    kernels::EncodeJob job{.call = call.fields,
                           .frame = place_,
                           .series = series_,
                           .values = values.data(),
                           .values_dtype = dtype(),
                           .factor = 0.5,
                           .residual = kept.as<float>()};
    job.frame.bytes = frames.frame();
    kernels::encode(job, nullptr);
    for (std::uint32_t i = 0; i < series_.frames; ++i) {
      const std::uint32_t shard = i < kLeftOut ? i : i + 1;
      const std::uint32_t first_tile = shard * 2 + std::min(shard, 2U) + begin;
      const std::uint64_t first = std::uint64_t{first_tile} * kTile;
      const std::uint64_t next =
          std::min<std::uint64_t>(kCount, (shard + 1) * 2 * kTile + std::min(shard + 1, 2U) * kTile);
      kernels::EncodeJob one{
          .call = singly.fields,
          .frame = {.bytes = frames_singly.frame() + i * series_.pitch,
                    .count = static_cast<std::uint32_t>(std::min<std::uint64_t>(most * kTile, next - first)),
                    .first_tile = first_tile,
                    .hop = 0,
                    .peer = 0},
          .values = values.data() + first * element(),
          .values_dtype = dtype(),
          .factor = 0.5,
          .residual = kept_singly.as<float>() + first};
      kernels::encode(one, nullptr);
    }
    EXPECT_EQ(difference(frames.bytes(), frames_singly.bytes()), "");
    EXPECT_EQ(difference(kept.bytes(), kept_singly.bytes()), "") << "residual";
    EXPECT_EQ(call.status.nonfinite, singly.status.nonfinite);
  }
}

// Mutations tried: all blocks read the first frame; the number of a shard is that of its frame.
TEST_P(Series, DecodeLikeJobsOfOneFrame) {
  lay(0, 3);
  const std::vector<std::byte> tensor = as_tensor(dtype(), inputs(kCount, 7, Kind::plain));
  Memory from(tensor);
  Memory frames(series_.frames * series_.pitch);
  Call call(codec_);
  place_.bytes = frames.frame();
  kernels::encode(
      {.call = call.fields, .frame = place_, .series = series_, .values = from.data(), .values_dtype = dtype()},
      nullptr);
  const std::vector<std::byte> before = as_tensor(dtype(), gauss(kCount, 9));
  for (const std::uint32_t damaged : {~0U, 0U, 1U, 2U}) {
    Memory values(before);
    Memory wanted(before);
    Call status(codec_);
    Call singly(codec_);
    if (damaged != ~0U) {
      frames.data()[damaged * series_.pitch + 16] ^= std::byte{1};
    }
    kernels::decode(
        {.call = status.fields, .frame = place_, .series = series_, .values = values.data(), .values_dtype = dtype()},
        nullptr);
    for (std::uint32_t i = 0; i < series_.frames; ++i) {
      const kernels::SeriesFrame frame = kernels::frame_of_series(place_, series_, i);
      EXPECT_EQ(frame.place.peer, i == 0 ? 0 : static_cast<int>(i) + 1);
      kernels::decode({.call = singly.fields,
                       .frame = frame.place,
                       .values = wanted.data() + frame.first * element(),
                       .values_dtype = dtype()},
                      nullptr);
    }
    EXPECT_EQ(difference(values.bytes(), wanted.bytes()), "") << damaged;
    EXPECT_EQ(status.status.bad_frames, damaged == ~0U ? 0U : 1U);
    EXPECT_EQ(status.status.bad_frames, singly.status.bad_frames);
    EXPECT_EQ(status.status.first_bad, singly.status.first_bad);
    EXPECT_EQ(status.status.nonfinite, singly.status.nonfinite);
    if (damaged != ~0U) {
      frames.data()[damaged * series_.pitch + 16] ^= std::byte{1};
    }
  }
}

TEST_P(Series, OneLaunchWritesTheHeadersOfTwoJobs) {
  lay(1, 1);
  Memory frames(series_.frames * series_.pitch);
  Memory sum(codec_.frame_bytes(77));
  Call call(codec_);
  kernels::HeaderJob jobs[2] = {{.call = call.fields, .frame = place_, .series = series_},
                                {.call = call.fields, .frame = place_of(sum, 77, 5, 1)}};
  jobs[0].frame.bytes = frames.frame();
  {
    const emulator::LaunchNotes notes;
    kernels::open_headers(jobs, nullptr);
    EXPECT_EQ(notes.launches().size(), 1U);
  }
  kernels::open_headers(jobs, nullptr);
  Memory values(as_tensor(dtype(), gauss(77, 3)));
  Memory wanted(codec_.frame_bytes(77));
  kernels::EncodeJob job{
      .call = call.fields, .frame = jobs[1].frame, .opened = true, .values = values.data(), .values_dtype = dtype()};
  kernels::encode(job, nullptr);
  job.frame.bytes = wanted.frame();
  job.opened = false;
  kernels::encode(job, nullptr);
  EXPECT_EQ(difference(sum.bytes(), wanted.bytes()), "");
}

// Seventy headers need several blocks, and each block writes several. Mutations tried: the index of the block is left
// out; a block writes only once; the first of two jobs is skipped.
TEST_P(Series, HeadersOfManyFramesAreThoseOfJobsOfOneFrame) {
  constexpr std::uint32_t kFrames = 70;
  place_ = {.bytes = nullptr, .count = kTile, .first_tile = 0, .hop = 0, .peer = -1};
  const auto pitch = static_cast<std::uint32_t>((codec_.frame_bytes(kTile) + 63) / 64 * 64);
  series_ = {.frames = kFrames, .left_out = kFrames, .pitch = pitch, .each = kTile, .longer = 0, .tiles = 1};
  series_.end = kFrames * kTile;
  Memory frames(kFrames * std::size_t{pitch});
  Memory singly(kFrames * std::size_t{pitch});
  Memory sum(codec_.frame_bytes(77));
  Call call(codec_);
  place_.bytes = frames.frame();
  const kernels::HeaderJob jobs[2] = {{.call = call.fields, .frame = place_, .series = series_},
                                      {.call = call.fields, .frame = place_of(sum, 77, 5, 1)}};
  kernels::open_headers(jobs, nullptr);
  for (std::uint32_t i = 0; i < kFrames; ++i) {
    kernels::FramePlace place = kernels::frame_of_series(place_, series_, i).place;
    place.bytes = singly.frame() + i * std::size_t{pitch};
    const kernels::HeaderJob one[1] = {{.call = call.fields, .frame = place}};
    kernels::open_headers(one, nullptr);
  }
  EXPECT_EQ(difference(frames.bytes(), singly.bytes()), "");
}

INSTANTIATE_TEST_SUITE_P(Codecs, Series, ::testing::ValuesIn(device_cases()), case_name);

}  // namespace
}  // namespace gradwire

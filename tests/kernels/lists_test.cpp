// Tests several jobs in one launch: frames, residuals and tensors are those of jobs that are launched one by one.
#include "device_support.hpp"
#include "kernels/device/frame_series.hpp"

namespace gradwire {
namespace {

using namespace test;

class Lists : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr std::uint32_t kTileSize = 4096;
  static constexpr std::size_t kJobs = 3;
  // The jobs are those of buckets of 2 ranks, with a short last tile, a whole one and a tiny one.
  static constexpr std::uint32_t kCounts[kJobs] = {3 * kTileSize + 300, 2 * kTileSize, 77};

  Lists() : codec_(GetParam().codec()) {}

  [[nodiscard]] DType dtype() const { return GetParam().dtype; }
  [[nodiscard]] std::uint32_t pitch(std::size_t job) const {
    return static_cast<std::uint32_t>((codec_.frame_bytes(kCounts[job]) + 63) / 64 * 64);
  }
  template <class Job>
  [[nodiscard]] static Memory list_of() {
    return Memory(kernels::list_bytes<Job>(kJobs));
  }

  codec::Codec codec_;
};

TEST_P(Lists, EncodeAndDecodeLikeSingleJobs) {
  std::vector<Memory> frames[2];
  std::vector<Memory> kept[2];
  std::vector<Memory> decoded[2];
  std::vector<Memory> values;
  std::uint32_t nonfinite[2] = {0, 0};
  for (std::size_t i = 0; i < kJobs; ++i) {
    values.emplace_back(as_tensor(dtype(), inputs(kCounts[i], static_cast<unsigned>(i), Kind::special)));
  }
  for (const std::size_t listed : {0U, 1U}) {
    Call call(codec_);
    std::vector<kernels::HeaderJob> headers;
    std::vector<kernels::EncodeJob> encoders;
    std::vector<kernels::DecodeJob> decoders;
    for (std::size_t i = 0; i < kJobs; ++i) {
      Memory& frame = frames[listed].emplace_back(codec_.frame_bytes(kCounts[i]));
      Memory& residual = kept[listed].emplace_back(gauss(kCounts[i], 8, 0.003));
      Memory& result = decoded[listed].emplace_back(kCounts[i] * element_bytes(dtype()));
      const kernels::FramePlace place = place_of(frame, kCounts[i], static_cast<std::uint32_t>(i));
      headers.push_back({.call = call.fields, .frame = place});
      encoders.push_back({.call = call.fields,
                          .frame = place,
                          .opened = true,
                          .values = values[i].data(),
                          .values_dtype = dtype(),
                          .factor = i == 1 ? 0.5 : 1,
                          .residual = i == 2 ? nullptr : residual.as<float>()});
      decoders.push_back({.call = call.fields, .frame = place, .values = result.data(), .values_dtype = dtype()});
    }
    if (listed == 1) {
      Memory lists[3] = {list_of<kernels::HeaderJob>(), list_of<kernels::EncodeJob>(), list_of<kernels::DecodeJob>()};
      kernels::open_all(headers, lists[0].as<std::uint64_t>(), nullptr);
      kernels::encode_all(encoders, lists[1].as<std::uint64_t>(), nullptr);
      kernels::decode_all(decoders, lists[2].as<std::uint64_t>(), nullptr);
    } else {
      for (std::size_t i = 0; i < kJobs; ++i) {
        kernels::open_headers({&headers[i], 1}, nullptr);
        kernels::encode(encoders[i], nullptr);
        kernels::decode(decoders[i], nullptr);
      }
    }
    nonfinite[listed] = call.status.nonfinite;
    EXPECT_EQ(call.status.bad_frames, 0U);
  }
  for (std::size_t i = 0; i < kJobs; ++i) {
    EXPECT_EQ(difference(frames[1][i].bytes(), frames[0][i].bytes()), "") << i;
    EXPECT_EQ(difference(kept[1][i].bytes(), kept[0][i].bytes()), "") << "residual " << i;
    EXPECT_EQ(difference(decoded[1][i].bytes(), decoded[0][i].bytes()), "") << "values " << i;
  }
  EXPECT_EQ(nonfinite[1], nonfinite[0]);
}

// One frame is damaged. Mutation tried: each tile reports it.
TEST_P(Lists, SumLikeSingleJobs) {
  for (const bool damaged : {false, true}) {
    std::vector<Memory> out[2];
    std::vector<Memory> kept[2];
    std::uint32_t bad[2] = {0, 0};
    for (const std::size_t listed : {0U, 1U}) {
      Call call(codec_);
      std::vector<Memory> frames;
      std::vector<Memory> own;
      std::vector<kernels::ReduceJob> sums;
      for (std::size_t i = 0; i < kJobs; ++i) {
        Memory& in = frames.emplace_back(2 * std::size_t{pitch(i)});
        for (const std::uint32_t rank : {0U, 1U}) {
          Memory values(as_tensor(dtype(), inputs(kCounts[i], rank, Kind::plain)));
          kernels::FramePlace place = place_of(in, kCounts[i], 5);
          place.bytes += rank * std::size_t{pitch(i)};
          kernels::encode({.call = call.fields, .frame = place, .values = values.data(), .values_dtype = dtype()},
                          nullptr);
        }
        in.data()[16] ^= damaged && i == 1 ? std::byte{1} : std::byte{0};
        Memory& tensor = own.emplace_back(as_tensor(dtype(), inputs(kCounts[i], 9, Kind::plain)));
        Memory& to = out[listed].emplace_back(codec_.frame_bytes(kCounts[i]));
        Memory& residual = kept[listed].emplace_back(gauss(kCounts[i], 8, 0.003));
        sums.push_back({.call = call.fields,
                        .second = frame_codec(codec_),
                        .count = kCounts[i],
                        .first_tile = 5,
                        .frames = in.frame(),
                        .pitch = pitch(i),
                        .ranks = 3,
                        .own_rank = static_cast<int>(i),
                        .own = tensor.data(),
                        .own_dtype = dtype(),
                        .divisor = i == 0 ? 3.0 : 1.0,
                        .out = to.frame(),
                        .opened = true,
                        .owner_residual = residual.as<float>()});
        const kernels::HeaderJob header = kernels::header_of(sums.back());
        kernels::open_headers({&header, 1}, nullptr);
      }
      call.status.nonfinite = 0;
      if (listed == 1) {
        Memory list = list_of<kernels::ReduceJob>();
        kernels::reduce_all(sums, list.as<std::uint64_t>(), nullptr);
      } else {
        for (const kernels::ReduceJob& sum : sums) {
          kernels::reduce(sum, nullptr);
        }
      }
      bad[listed] = call.status.bad_frames;
    }
    for (std::size_t i = 0; i < kJobs; ++i) {
      EXPECT_EQ(difference(out[1][i].bytes(), out[0][i].bytes()), "") << i;
      EXPECT_EQ(difference(kept[1][i].bytes(), kept[0][i].bytes()), "") << "residual " << i;
    }
    EXPECT_EQ(bad[0], damaged ? 1U : 0U);
    EXPECT_EQ(bad[1], bad[0]);
  }
}

std::vector<Case> listed_cases() {
  std::vector<Case> cases;
  for (const Case& one : device_cases()) {
    if (one.k == 0 && one.codec().lossy()) {
      cases.push_back(one);
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Codecs, Lists, ::testing::ValuesIn(listed_cases()), case_name);

}  // namespace
}  // namespace gradwire

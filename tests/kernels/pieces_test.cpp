// Tests jobs over the tensors of a bucket where they lie: frames, residuals and tensors are those of the same job over
// one array. Tensors are of random lengths, at any element's alignment, with guards around each.
#include <numeric>
#include <random>

#include "device_support.hpp"
#include "kernels/device/frame_series.hpp"
#include "tests/support/nasty_values.hpp"

namespace gradwire {
namespace {

using namespace test;

constexpr std::uint32_t kPiecesTile = 4096;
constexpr std::uint32_t kPiecesCount = 9 * kPiecesTile + 300;
constexpr std::uint32_t kPiecesBefore = 777;  // elements of the bucket before the job

/// Holds tensors with the elements of an array, and with some of the bucket before and behind it.
class Tensors {
 public:
  /// `zeros`: some tensors are null, and their elements in `array` become zeros.
  Tensors(std::vector<std::byte>& array, DType dtype, std::mt19937& random, bool zeros)
      : element_(element_bytes(dtype)) {
    const std::size_t all = kPiecesBefore + array.size() / element_ + 555;
    for (std::size_t begin = 0; begin < all;) {
      const auto up_to = [&](std::size_t most) { return 1 + random() % most; };
      const std::size_t wanted = std::array{up_to(3), up_to(300), up_to(5000), up_to(20000)}[random() % 4];
      const std::size_t count = std::min(wanted, all - begin);
      Memory& tensor = tensors_.emplace_back(count * element_, random() % 17 * element_);
      const bool null = zeros && random() % 4 == 0;
      for_each_in(array, begin, count, [&](std::size_t in_tensor, std::size_t in_array, std::size_t bytes) {
        null ? std::memset(array.data() + in_array, 0, bytes)
             : std::memcpy(tensor.data() + in_tensor, array.data() + in_array, bytes);
      });
      table_.push_back({null ? nullptr : tensor.frame(), begin});
      begin += count;
    }
    table_.push_back({nullptr, all});
  }

  [[nodiscard]] kernels::PieceTable table() const {
    return {.pieces = table_.data(), .count = static_cast<std::uint32_t>(tensors_.size()), .first = kPiecesBefore};
  }
  /// Returns the elements of the array, as they are in the tensors now.
  [[nodiscard]] std::vector<std::byte> array(std::size_t bytes) {
    std::vector<std::byte> array(bytes);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      for_each_in(array, table_[i].begin, table_[i + 1].begin - table_[i].begin,
                  [&](std::size_t in_tensor, std::size_t in_array, std::size_t n) {
                    std::memcpy(array.data() + in_array, tensors_[i].data() + in_tensor, n);
                  });
    }
    return array;
  }
  /// Returns the bytes of the bucket before and behind the array.
  [[nodiscard]] std::vector<std::byte> others(std::size_t bytes) const {
    std::vector<std::byte> all;
    for (const Memory& tensor : tensors_) {
      const std::vector<std::byte> more = tensor.bytes();
      all.insert(all.end(), more.begin(), more.end());
    }
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(kPiecesBefore * element_);
    all.erase(begin, begin + static_cast<std::ptrdiff_t>(bytes));
    return all;
  }

 private:
  // Calls body(offset in the tensor, offset in the array, bytes) for the elements that both have.
  template <class Body>
  void for_each_in(const std::vector<std::byte>& array, std::size_t begin, std::size_t count, const Body& body) const {
    const std::size_t first = std::max<std::size_t>(begin, kPiecesBefore);
    const std::size_t past = std::min(begin + count, kPiecesBefore + array.size() / element_);
    if (first < past) {
      body((first - begin) * element_, (first - kPiecesBefore) * element_, (past - first) * element_);
    }
  }

  std::size_t element_;
  std::vector<Memory> tensors_;
  std::vector<kernels::Piece> table_;
};

class Pieces : public ::testing::TestWithParam<Case> {
 protected:
  Pieces()
      : codec_(GetParam().codec()),
        place_{.bytes = nullptr, .count = 3 * kPiecesTile, .first_tile = 0, .hop = 0, .peer = -1},
        series_{.frames = 3,
                .left_out = 1,
                .pitch = static_cast<std::uint32_t>((codec_.frame_bytes(3 * kPiecesTile) + 63) / 64 * 64),
                .each = 2 * kPiecesTile,
                .longer = 2,
                .tiles = 2,
                .begin = 0,
                .end = kPiecesCount},
        seed_(seed_of("Pieces", 20261130)),
        random_(seed_) {}

  [[nodiscard]] DType dtype() const { return GetParam().dtype; }
  [[nodiscard]] std::string trace() const { return "seed " + std::to_string(seed_); }

  codec::Codec codec_;
  kernels::FramePlace place_;
  kernels::FrameSeries series_;
  unsigned seed_;
  std::mt19937 random_;
};

// Mutation tried, here and below: a strip ends with its first piece.
TEST_P(Pieces, EncodeLikeAnArray) {
  SCOPED_TRACE(trace());
  for (const bool zeros : {false, true}) {
    for (const bool keeps : {false, true}) {
      std::vector<std::byte> array = as_tensor(dtype(), inputs(kPiecesCount, 7, zeros ? Kind::special : Kind::plain));
      const Tensors tensors(array, dtype(), random_, zeros);
      Memory values(array);
      const std::vector<float> residual = gauss(kPiecesCount, 8, 0.003);
      Memory frames[2] = {Memory(series_.frames * series_.pitch), Memory(series_.frames * series_.pitch)};
      Memory kept[2] = {Memory(residual), Memory(residual)};
      Call calls[2] = {Call(codec_), Call(codec_)};
      for (const int in_pieces : {0, 1}) {
        kernels::EncodeJob job{.call = calls[in_pieces].fields,
                               .frame = place_,
                               .series = series_,
                               .values_dtype = dtype(),
                               .factor = keeps ? 0.5 : 1.0,
                               .residual = keeps ? kept[in_pieces].as<float>() : nullptr};
        job.frame.bytes = frames[in_pieces].frame();
        job.pieces = in_pieces == 1 ? tensors.table() : kernels::PieceTable();
        job.values = in_pieces == 1 ? nullptr : values.data();
        kernels::encode(job, nullptr);
      }
      EXPECT_EQ(difference(frames[1].bytes(), frames[0].bytes()), "");
      EXPECT_EQ(difference(kept[1].bytes(), kept[0].bytes()), "") << "residual";
      EXPECT_EQ(calls[1].status.nonfinite, calls[0].status.nonfinite);
    }
  }
}

TEST_P(Pieces, DecodeLikeAnArray) {
  SCOPED_TRACE(trace());
  std::vector<std::byte> array = as_tensor(dtype(), inputs(kPiecesCount, 7, Kind::plain));
  Memory from(array);
  Memory frames(series_.frames * series_.pitch);
  Call call(codec_);
  place_.bytes = frames.frame();
  kernels::encode(
      {.call = call.fields, .frame = place_, .series = series_, .values = from.data(), .values_dtype = dtype()},
      nullptr);
  for (const bool damaged : {false, true}) {
    frames.data()[16] ^= damaged ? std::byte{1} : std::byte{0};
    std::vector<std::byte> before = as_tensor(dtype(), gauss(kPiecesCount, 9));
    Tensors tensors(before, dtype(), random_, false);
    const std::vector<std::byte> others = tensors.others(before.size());
    Memory values(before);
    Call status(codec_);
    Call in_pieces(codec_);
    kernels::decode(
        {.call = status.fields, .frame = place_, .series = series_, .values = values.data(), .values_dtype = dtype()},
        nullptr);
    kernels::decode({.call = in_pieces.fields,
                     .frame = place_,
                     .series = series_,
                     .pieces = tensors.table(),
                     .values_dtype = dtype()},
                    nullptr);
    EXPECT_EQ(difference(tensors.array(before.size()), values.bytes()), "") << (damaged ? "damaged" : "");
    EXPECT_EQ(difference(tensors.others(before.size()), others), "");
    EXPECT_EQ(in_pieces.status.bad_frames, status.status.bad_frames);
    EXPECT_EQ(in_pieces.status.nonfinite, status.status.nonfinite);
  }
}

TEST_P(Pieces, SumLikeAnArray) {
  SCOPED_TRACE(trace());
  constexpr std::uint32_t kElements = 2 * kPiecesTile + 1234;
  const auto pitch = static_cast<std::uint32_t>((codec_.frame_bytes(kElements) + 15) / 16 * 16);
  Memory frames(2 * std::size_t{pitch});
  for (const std::uint32_t rank : {0U, 1U}) {
    Memory values(as_tensor(dtype(), inputs(kElements, rank, Kind::plain)));
    Call call(codec_);
    kernels::FramePlace place{.bytes = frames.frame() + rank * std::size_t{pitch}, .count = kElements, .first_tile = 5};
    kernels::encode(
        {.call = call.fields, .frame = place, .values = values.data(), .values_dtype = dtype(), .factor = 2}, nullptr);
  }
  for (const bool encodes : {true, false}) {
    std::vector<std::byte> array = as_tensor(dtype(), inputs(kElements, 5, Kind::plain));
    const Tensors own(array, dtype(), random_, true);
    std::vector<std::byte> before(array.size());
    Tensors results(before, dtype(), random_, false);
    Memory values(array);
    Memory result(before);
    Memory out[2] = {Memory(codec_.frame_bytes(kElements)), Memory(codec_.frame_bytes(kElements))};
    Memory kept[2] = {Memory(gauss(kElements, 8, 0.003)), Memory(gauss(kElements, 8, 0.003))};
    for (const int in_pieces : {0, 1}) {
      Call call(codec_);
      kernels::ReduceJob job{.call = call.fields,
                             .second = frame_codec(codec_),
                             .count = kElements,
                             .first_tile = 5,
                             .frames = frames.frame(),
                             .pitch = pitch,
                             .ranks = 3,
                             .own_rank = 1,
                             .own = in_pieces == 1 ? nullptr : values.data(),
                             .own_dtype = dtype(),
                             .own_residual = kept[in_pieces].as<float>(),
                             .divisor = 3,
                             .out = encodes ? out[in_pieces].frame() : nullptr,
                             .result = encodes || in_pieces == 1 ? nullptr : result.data(),
                             .result_dtype = dtype()};
      if (in_pieces == 1) {
        job.own_pieces = own.table();
        job.result_pieces = encodes ? kernels::PieceTable() : results.table();
      }
      kernels::reduce(job, nullptr);
    }
    EXPECT_EQ(difference(out[1].bytes(), out[0].bytes()), "");
    EXPECT_EQ(difference(kept[1].bytes(), kept[0].bytes()), "") << "residual";
    EXPECT_EQ(difference(results.array(before.size()), result.bytes()), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, Pieces, ::testing::ValuesIn(device_cases()), case_name);

TEST(Words, AreWrittenByAnyNumberOfLaunches) {
  for (const std::size_t count : {1U, 480U, 481U, 2000U}) {
    std::vector<std::uint64_t> words(count);
    std::iota(words.begin(), words.end(), std::uint64_t{1} << 40);
    Memory written(count * sizeof(std::uint64_t));
    kernels::write(words, written.as<std::uint64_t>(), nullptr);
    EXPECT_EQ(written.to<std::uint64_t>(), words);
  }
}

}  // namespace
}  // namespace gradwire

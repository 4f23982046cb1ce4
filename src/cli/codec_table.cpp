#include "cli/codec_table.hpp"

#include <algorithm>
#include <chrono>
#include <deque>

#include "base/record_target.hpp"
#include "choice/quickest.hpp"
#include "codec/codec.hpp"
#include "gradwire/error.hpp"
#include "policy/stage.hpp"

namespace gradwire::cli {
namespace {

constexpr std::uint64_t kTile = codec::kTileElements;
constexpr std::uint64_t kMostTiles = 64;              // of a piece: 1 MiB of f32, which stays in a cache
constexpr std::uint64_t kMostTilesOfAllSteps = 8192;  // pieces of all steps are in memory at once
constexpr std::uint64_t kPackedFrame = 4 * kTile;     // about kDefaultChunkBytes of f32
constexpr auto kSpeedBudget = std::chrono::milliseconds(8);

// Holds the same piece of a tensor in all its steps.
class Piece {
 public:
  // Takes `steps` steps: the first `stored` ones of the tensor, again and again.
  Piece(const GradientSteps& tensor, std::size_t stored, std::size_t steps)
      : tensor_(tensor), bytes_(element_bytes(tensor.dtype)) {
    for (std::size_t i = 0; i < stored; ++i) {
      readers_.emplace_back(tensor.steps[i]);
    }
    elements_ = std::clamp<std::uint64_t>(kMostTilesOfAllSteps / stored, 1, kMostTiles) * kTile;
    values_.resize(stored);
    for (std::size_t i = 0; i < steps; ++i) {
      addresses_.push_back(nullptr);
    }
  }

  // Reads the piece at element `first`; returns its number of elements.
  std::uint32_t read(std::uint64_t first) {
    const std::uint64_t count = std::min(elements_, tensor_.count - first);
    for (std::size_t i = 0; i < readers_.size(); ++i) {
      values_[i].resize(count * bytes_);
      readers_[i].read(first, count, values_[i].data());
    }
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      addresses_[i] = values_[i % values_.size()].data();
    }
    return static_cast<std::uint32_t>(count);
  }
  [[nodiscard]] std::span<const void* const> steps() const { return addresses_; }

 private:
  const GradientSteps& tensor_;
  std::size_t bytes_;
  std::uint64_t elements_ = 0;
  std::deque<record::GradientValues> readers_;
  std::vector<std::vector<std::byte>> values_;  // by stored step
  std::vector<const void*> addresses_;          // by step
};

void measure_speed(CodecRow& row, const CodecSpec& codec, bool feedback, ConstView values) {
  choice::TrialFrame frame(codec, values);
  std::vector<float> residual(values.count, 0.0F);
  std::vector<float> sum(values.count, 0.0F);
  const auto bytes = static_cast<double>(values.count * element_bytes(values.dtype));
  row.encode_rate =
      bytes / choice::quickest_seconds(kSpeedBudget, [&] { frame.encode(feedback ? residual.data() : nullptr); });
  row.decode_rate = bytes / choice::quickest_seconds(kSpeedBudget, [&] { frame.decode_and_add(sum.data()); });
}

// Returns the mean bytes, over a piece's steps, of its frames, whose size depends on its values.
double packed_bytes(const CodecSpec& codec, std::span<const void* const> steps, std::uint64_t count, DType dtype) {
  double bytes = 0;
  for (std::uint64_t first = 0; first < count; first += kPackedFrame) {
    const std::uint64_t some = std::min(kPackedFrame, count - first);
    for (const void* const step : steps) {
      choice::TrialFrame frame(codec,
                               {static_cast<const std::byte*>(step) + first * element_bytes(dtype), some, dtype});
      frame.encode();
      bytes += static_cast<double>(frame.bytes());
    }
  }
  return bytes / static_cast<double>(steps.size());
}

void check_open_files(std::size_t steps) {
  if (steps > RecordTarget::kMostSteps) {
    throw Error(ErrorCode::invalid_argument, std::to_string(steps) + " recorded steps: at most " +
                                                 std::to_string(RecordTarget::kMostSteps) +
                                                 " are read at once; take the first of them by --steps");
  }
}

}  // namespace

double tensor_bytes(const GradientSteps& tensor) {
  return static_cast<double>(tensor.count) * static_cast<double>(element_bytes(tensor.dtype));
}

std::vector<CodecRow> measure_codecs(const Gradients& gradients, std::span<const CodecChoice> choices,
                                     std::size_t steps) {
  const std::size_t stored = std::min(steps, gradients.recorded_steps);
  check_open_files(stored);
  const std::vector<GradientSteps>& tensors = gradients.tensors;
  const auto largest = static_cast<std::size_t>(
      std::max_element(tensors.begin(), tensors.end(),
                       [](const GradientSteps& a, const GradientSteps& b) { return a.count < b.count; }) -
      tensors.begin());
  std::vector<CodecRow> rows;
  for (const CodecChoice& choice : choices) {
    rows.push_back({.name = choice.name,
                    .effect = {},
                    .tensors = std::vector<choice::CodecEffect>(tensors.size()),
                    .tensor_frame_bytes = std::vector<double>(tensors.size())});
  }
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const GradientSteps& tensor = tensors[t];
    Piece piece(tensor, stored, steps);
    for (std::uint64_t first = 0, count = 0; first < tensor.count; first += count) {
      count = piece.read(first);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const CodecSpec& codec = choices[i].codecs[t];
        const std::vector<bool>& feedback = choices[i].feedback;
        rows[i].tensors[t].add(choice::measure_effect(codec, tensor.dtype, static_cast<std::uint32_t>(count),
                                                      piece.steps(), static_cast<std::uint32_t>(first / kTile),
                                                      feedback.empty() || feedback[t]));
        if (codec::Codec(codec, tensor.dtype).packed()) {
          rows[i].tensor_frame_bytes[t] += packed_bytes(codec, piece.steps(), count, tensor.dtype);
        }
        if (t == largest && first == 0) {
          const bool keeps = feedback.empty() ? policy::wants_feedback(codec) : feedback[t];
          measure_speed(rows[i], codec, keeps, {piece.steps().front(), count, tensor.dtype});
        }
      }
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const codec::Codec codec(choices[i].codecs[t], tensor.dtype);
      if (!codec.packed()) {  // one frame with all of it
        rows[i].tensor_frame_bytes[t] = static_cast<double>(codec.frame_bytes(tensor.count));
      }
      rows[i].lossy = rows[i].lossy || codec.lossy();
      rows[i].bytes += tensor_bytes(tensor);
      rows[i].frame_bytes += rows[i].tensor_frame_bytes[t];
      rows[i].effect.add(rows[i].tensors[t]);
    }
  }
  return rows;
}

}  // namespace gradwire::cli

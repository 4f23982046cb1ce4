// Measures what codecs and a policy do to given gradients.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "choice/codec_effect.hpp"
#include "cli/gradients.hpp"
#include "gradwire/codec_spec.hpp"

namespace gradwire::cli {

/// A codec, or a policy, with the codec of each tensor.
struct CodecChoice {
  std::string name;
  std::vector<CodecSpec> codecs;    // by tensor
  std::vector<bool> feedback = {};  // by tensor: whether a policy keeps residuals; empty: measured with feedback
};

struct CodecRow {
  std::string name;
  bool lossy = false;  // one of its codecs is
  double bytes = 0;
  double frame_bytes = 0;
  choice::CodecEffect effect;
  double encode_rate = 0;  // bytes of gradients a second, one thread
  double decode_rate = 0;
  std::vector<choice::CodecEffect> tensors;  // by tensor
  std::vector<double> tensor_frame_bytes;    // likewise
  [[nodiscard]] double ratio() const noexcept { return bytes / frame_bytes; }
};

/// One row for each choice. Each tensor takes `steps` steps. All tensors have as many different ones as the tensor that
/// was recorded in the fewest; further steps repeat these. Values are read in pieces. Error(invalid_argument) where so
/// many recorded steps would be read at once that their files cannot all be open.
[[nodiscard]] std::vector<CodecRow> measure_codecs(const Gradients& gradients, std::span<const CodecChoice> choices,
                                                   std::size_t steps);

[[nodiscard]] double tensor_bytes(const GradientSteps& tensor);

}  // namespace gradwire::cli

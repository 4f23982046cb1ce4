// What every table has, whoever counts its updates: all that rows, their optimizer, codecs and files depend on.
#pragma once

#include <cstdint>
#include <string>

#include "gradwire/codec_spec.hpp"
#include "gradwire/table.hpp"

namespace gradwire::table {

struct RowOptions {
  std::string name;
  std::uint64_t rows = 0;
  std::uint32_t width = 0;
  RowOptimizer optimizer = RowOptimizer::sgd;
  float learning_rate = 0;
  float epsilon = 0;
  float initial_scale = 0;
  std::uint64_t seed = 0;
  CodecSpec codec;
  CodecSpec gradient_codec;
};

/// Of the options of either kind of table.
template <class Options>
[[nodiscard]] RowOptions row_options(const Options& options) {
  return {.name = options.name,
          .rows = options.rows,
          .width = options.width,
          .optimizer = options.optimizer,
          .learning_rate = options.learning_rate,
          .epsilon = options.epsilon,
          .initial_scale = options.initial_scale,
          .seed = options.seed,
          .codec = options.codec,
          .gradient_codec = options.gradient_codec};
}

/// Floats that a row takes where it is held, and in files: its values, and the sums of Adagrad.
[[nodiscard]] constexpr std::size_t row_floats(RowOptimizer optimizer, std::uint32_t width) noexcept {
  return std::size_t{optimizer == RowOptimizer::adagrad ? 2U : 1U} * width;
}
[[nodiscard]] constexpr const char* name_of(RowOptimizer optimizer) noexcept {
  return optimizer == RowOptimizer::adagrad ? "adagrad" : "sgd";
}

}  // namespace gradwire::table

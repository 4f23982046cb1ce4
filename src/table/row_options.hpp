// The options that all kinds of tables have: rows, their optimizer, codecs and files depend on them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gradwire/table.hpp"

namespace gradwire::table {

/// A Table has one copy of each row.
using RowOptions = SessionTableOptions;

[[nodiscard]] inline RowOptions row_options(const TableOptions& options) {
  return {.name = options.name,
          .rows = options.rows,
          .width = options.width,
          .optimizer = options.optimizer,
          .learning_rate = options.learning_rate,
          .epsilon = options.epsilon,
          .initial_scale = options.initial_scale,
          .seed = options.seed,
          .codec = options.codec,
          .gradient_codec = options.gradient_codec,
          .copies = 1,
          .store = options.store,
          .memory = options.memory};
}

/// The number of floats of a row in memory and in files: its values, and the sums of Adagrad.
[[nodiscard]] constexpr std::size_t row_floats(RowOptimizer optimizer, std::uint32_t width) noexcept {
  return std::size_t{optimizer == RowOptimizer::adagrad ? 2U : 1U} * width;
}
[[nodiscard]] constexpr const char* name_of(RowOptimizer optimizer) noexcept {
  return optimizer == RowOptimizer::adagrad ? "adagrad" : "sgd";
}

}  // namespace gradwire::table

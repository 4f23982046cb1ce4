// Provides samples to learn from, by a generator or from a file in Criteo's format. A sample has numbers, one category
// for each field, and whether there was a click.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

namespace ctr_hybrid {

struct Batch {
  std::vector<float> numbers;       // samples x numbers
  std::vector<std::uint64_t> rows;  // samples x fields: rows of the one embedding table that all fields share
  std::vector<float> clicks;        // 0 or 1
};

class Data {
 public:
  Data() = default;
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  virtual ~Data() = default;

  [[nodiscard]] virtual std::uint64_t numbers() const = 0;
  [[nodiscard]] virtual std::uint64_t fields() const = 0;
  [[nodiscard]] virtual std::uint64_t table_rows() const = 0;
  /// Appends sample `index` of the training part, or of the held-out part. Any index is valid; the sample is a pure
  /// function of it.
  virtual void append(std::uint64_t index, bool held_out, Batch& batch) const = 0;
};

struct GeneratorOptions {
  std::uint64_t fields = 8;
  std::uint64_t categories = 16384;  // per field
  std::uint64_t numbers = 4;
  double zipf = 1.05;  // category c of a field has a probability of about (c + 1)^-zipf
  std::uint64_t seed = 1;
};

/// Returns samples of a planted model, a factorisation machine: each category has a weight and a vector of four, both
/// Gaussian; the logit is the sum of weights, of products of all pairs of vectors, and of a linear function of the
/// numbers.
[[nodiscard]] std::unique_ptr<Data> make_generator(const GeneratorOptions& options);

/// Reads tab-separated lines: click, 13 integers, 26 categories, any of them empty. Categories are hashed into
/// `categories` rows for each field, and an integer x becomes log(1 + x). Every tenth line is held out; indices wrap
/// around. Throws std::runtime_error that names a line which has another form.
[[nodiscard]] std::unique_ptr<Data> read_criteo(const std::filesystem::path& file, std::uint64_t categories);

}  // namespace ctr_hybrid

#include "data.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <numbers>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace ctr_hybrid {
namespace {

/// Returns 64 random bits as a function of two numbers (SplitMix64).
std::uint64_t random_bits(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15U + b;
  for (int round = 0; round < 2; ++round) {
    x += 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
    x ^= x >> 31U;
  }
  return x;
}

/// Returns a random number in (0, 1).
double uniform(std::uint64_t a, std::uint64_t b) {
  return (static_cast<double>(random_bits(a, b) >> 11U) + 0.5) * 0x1p-53;
}

double gauss(std::uint64_t a, std::uint64_t b) {
  return std::sqrt(-2 * std::log(uniform(a, 2 * b))) * std::cos(2 * std::numbers::pi * uniform(a, 2 * b + 1));
}

class Generator final : public Data {
 public:
  explicit Generator(const GeneratorOptions& options) : options_(options) {
    for (std::uint64_t c = 0; c < options.categories; ++c) {
      sums_.push_back((c == 0 ? 0 : sums_.back()) + std::pow(static_cast<double>(c + 1), -options.zipf));
    }
  }

  [[nodiscard]] std::uint64_t numbers() const override { return options_.numbers; }
  [[nodiscard]] std::uint64_t fields() const override { return options_.fields; }
  [[nodiscard]] std::uint64_t table_rows() const override { return options_.fields * options_.categories; }

  void append(std::uint64_t index, bool held_out, Batch& batch) const override {
    const std::uint64_t sample = random_bits(options_.seed, 2 * index + (held_out ? 1 : 0));
    double logit = kBias;
    std::uint64_t draw = 0;
    for (std::uint64_t i = 0; i < options_.numbers; ++i) {
      const double x = gauss(sample, draw++);
      batch.numbers.push_back(static_cast<float>(x));
      logit += x * gauss(options_.seed ^ kNumbers, i) * kNumberWeight;
    }
    draw *= 2;
    std::array<double, kFactors> sum{};
    std::array<double, kFactors> squares{};
    for (std::uint64_t field = 0; field < options_.fields; ++field) {
      const std::uint64_t row = field * options_.categories + category(uniform(sample, draw++));
      batch.rows.push_back(row);
      logit += kWeight * gauss(options_.seed ^ kWeights, row);
      for (std::uint64_t k = 0; k < kFactors; ++k) {
        const double v = gauss(options_.seed ^ kVectors, row * kFactors + k);
        sum[k] += v;
        squares[k] += v * v;
      }
    }
    for (std::uint64_t k = 0; k < kFactors; ++k) {
      logit += kPairs * (sum[k] * sum[k] - squares[k]) / 2;
    }
    batch.clicks.push_back(uniform(sample, draw) < 1 / (1 + std::exp(-logit)) ? 1.0F : 0.0F);
  }

 private:
  static constexpr std::uint64_t kFactors = 4;
  static constexpr double kBias = -1, kNumberWeight = 0.3, kWeight = 0.5, kPairs = 0.06;
  static constexpr std::uint64_t kNumbers = 1ULL << 60U, kWeights = 2ULL << 60U, kVectors = 3ULL << 60U;

  [[nodiscard]] std::uint64_t category(double u) const {
    const auto at = std::upper_bound(sums_.begin(), sums_.end(), u * sums_.back());
    return std::min(static_cast<std::uint64_t>(at - sums_.begin()), options_.categories - 1);
  }

  GeneratorOptions options_;
  std::vector<double> sums_;  // of the probabilities of categories, up to a factor
};

class Criteo final : public Data {
 public:
  static constexpr std::uint64_t kNumbers = 13, kFields = 26;

  Criteo(const std::filesystem::path& file, std::uint64_t categories) : categories_(categories) {
    std::ifstream stream(file);
    if (!stream) {
      throw std::runtime_error(file.string() + ": cannot be read");
    }
    std::string line;
    for (std::uint64_t number = 1; std::getline(stream, line); ++number) {
      if (!parse(line, number % 10 == 0 ? held_out_ : training_)) {
        throw std::runtime_error(file.string() + ":" + std::to_string(number) +
                                 ": needs a click (0 or 1), 13 integers and 26 categories, separated by tabs");
      }
    }
    if (training_.clicks.empty() || held_out_.clicks.empty()) {
      throw std::runtime_error(file.string() + ": needs at least 10 lines");
    }
  }

  [[nodiscard]] std::uint64_t numbers() const override { return kNumbers; }
  [[nodiscard]] std::uint64_t fields() const override { return kFields; }
  [[nodiscard]] std::uint64_t table_rows() const override { return kFields * categories_; }

  void append(std::uint64_t index, bool held_out, Batch& batch) const override {
    const Batch& all = held_out ? held_out_ : training_;
    const auto sample = static_cast<std::ptrdiff_t>(index % all.clicks.size());
    const auto copy = [&](const auto& from, auto& to, std::uint64_t width) {
      const auto begin = from.begin() + sample * static_cast<std::ptrdiff_t>(width);
      to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
    };
    copy(all.numbers, batch.numbers, kNumbers);
    copy(all.rows, batch.rows, kFields);
    copy(all.clicks, batch.clicks, 1);
  }

 private:
  bool parse(std::string_view line, Batch& to) const {
    for (std::uint64_t column = 0; column < 1 + kNumbers + kFields; ++column) {
      const std::size_t tab = line.find('\t');
      if ((tab == std::string_view::npos) != (column == kNumbers + kFields)) {
        return false;
      }
      const std::string_view text = line.substr(0, tab);
      line.remove_prefix(tab == std::string_view::npos ? line.size() : tab + 1);
      if (column > kNumbers) {
        const std::uint64_t field = column - 1 - kNumbers;
        to.rows.push_back(field * categories_ + hash(text) % categories_);
        continue;
      }
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (!text.empty() && (error != std::errc() || end != text.data() + text.size())) {
        return false;
      }
      if (column > 0) {
        to.numbers.push_back(std::log1p(static_cast<float>(std::max<std::int64_t>(value, 0))));
      } else if (text.empty() || (value != 0 && value != 1)) {
        return false;
      } else {
        to.clicks.push_back(static_cast<float>(value));
      }
    }
    return true;
  }

  /// Computes FNV-1a.
  static std::uint64_t hash(std::string_view text) {
    std::uint64_t value = 0xCBF29CE484222325U;
    for (const char c : text) {
      value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    }
    return value ^ (value >> 32U);
  }

  std::uint64_t categories_;
  Batch training_, held_out_;
};

}  // namespace

std::unique_ptr<Data> make_generator(const GeneratorOptions& options) { return std::make_unique<Generator>(options); }

std::unique_ptr<Data> read_criteo(const std::filesystem::path& file, std::uint64_t categories) {
  return std::make_unique<Criteo>(file, categories);
}

}  // namespace ctr_hybrid

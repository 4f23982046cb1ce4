#include "watch/metric.hpp"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <numeric>

namespace gradwire::watch {
namespace {

std::string text_of(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "+Inf" : "-Inf";
  }
  std::array<char, 32> text{};
  auto* const end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

// Escapes a label's value; for a help text `quotes` is false.
std::string escaped(std::string_view text, bool quotes) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    if (c == '\\' || (quotes && c == '"')) {
      result += '\\';
    }
    result += c;
  }
  return result;
}

std::string text_of(const Labels& common, const Labels& own, std::string_view le = {}) {
  std::string text;
  const auto add = [&](std::string_view name, std::string_view value) {
    text += (text.empty() ? "{" : ",") + std::string(name) + "=\"" + escaped(value, true) + "\"";
  };
  for (const auto& [name, value] : common) {
    add(name, value);
  }
  for (const auto& [name, value] : own) {
    add(name, value);
  }
  if (!le.empty()) {
    add("le", le);
  }
  return text.empty() ? text : text + "}";
}

void append(std::string& text, const std::string& name, const Labels& common, const HistogramSample& sample) {
  std::uint64_t below = 0;
  for (std::size_t i = 0; i <= Histogram::kBounds; ++i) {
    below += sample.histogram.counts()[i];
    const std::string bound = i < Histogram::kBounds ? text_of(sample.histogram.bound(i)) : "+Inf";
    text += name + "_bucket" + text_of(common, sample.labels, bound) + " " + std::to_string(below) + "\n";
  }
  text += name + "_sum" + text_of(common, sample.labels) + " " + text_of(sample.histogram.sum()) + "\n";
  text += name + "_count" + text_of(common, sample.labels) + " " + std::to_string(below) + "\n";
}

}  // namespace

void Histogram::add(double value) noexcept {
  ++counts_[place_of(value / first_)];
  sum_ += value;
}

void Histogram::add(const Histogram& other) noexcept {
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    counts_[i] += other.counts_[i];
  }
  sum_ += other.sum_;
}

// The least i with x <= 4^i, from the bits of x: half of its exponent, and one more where x is above that power.
std::size_t Histogram::place_of(double x) noexcept {
  if (!(x > 1)) {
    return 0;
  }
  constexpr int kMantissaBits = 52;
  constexpr std::uint64_t kBias = 1023;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t exponent = (bits >> kMantissaBits) - kBias;
  const bool power_of_4 = exponent % 2 == 0 && (bits & ((std::uint64_t{1} << kMantissaBits) - 1)) == 0;
  const std::uint64_t place = exponent / 2 + (power_of_4 ? 0 : 1);
  return place < kBounds ? static_cast<std::size_t>(place) : kBounds;
}

double Histogram::bound(std::size_t i) const noexcept { return std::ldexp(first_, 2 * static_cast<int>(i)); }

std::uint64_t Histogram::count() const noexcept {
  return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0});
}

Labels labels_of_rank(const std::string& part, int rank, const std::string& job) {
  Labels labels{{"part", part}, {"rank", std::to_string(rank)}};
  if (!job.empty()) {
    labels.emplace_back("gradwire_job", job);  // Prometheus gives samples a label `job` of its own
  }
  return labels;
}

std::string to_text(std::span<const Family> families, const Labels& common) {
  static constexpr std::array<const char*, 3> kTypes{"counter", "gauge", "histogram"};
  std::string text;
  for (const Family& family : families) {
    if (family.samples.empty() && family.histograms.empty()) {
      continue;
    }
    text += "# HELP " + family.name + " " + escaped(family.help, false) + "\n";
    text += "# TYPE " + family.name + " " + kTypes[static_cast<std::size_t>(family.type)] + "\n";
    for (const Sample& sample : family.samples) {
      text += family.name + text_of(common, sample.labels) + " " + text_of(sample.value) + "\n";
    }
    for (const HistogramSample& sample : family.histograms) {
      append(text, family.name, common, sample);
    }
  }
  return text + "# EOF\n";
}

}  // namespace gradwire::watch

#include "watch/metrics_page.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <utility>

namespace gradwire::watch {
namespace {

template <typename Samples>
void label(Samples& samples, const Labels& common) {
  for (auto& sample : samples) {
    sample.labels.insert(sample.labels.begin(), common.begin(), common.end());
  }
}

template <typename Samples>
void append(Samples& to, Samples& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

// A family of samples in C types. The objects that it points to must outlive it.
class Plain {
 public:
  Plain(const Family& family, void* page, AddFamily add) {
    const std::size_t all = family.samples.size() + family.histograms.size();
    labels_.resize(all);
    below_.resize(family.histograms.size());
    for (const Sample& sample : family.samples) {
      begin(sample.labels).value = sample.value;
    }
    for (const HistogramSample& sample : family.histograms) {
      add_histogram(sample);
    }
    const PlainFamily plain{family.name.c_str(), family.help.c_str(), static_cast<std::int32_t>(family.type),
                            samples_.data(), samples_.size()};
    add(page, &plain);
  }

 private:
  using Bounds = std::array<double, Histogram::kBounds>;
  using Below = std::array<std::uint64_t, Histogram::kBounds>;

  PlainSample& begin(const Labels& labels) {
    std::vector<PlainLabel>& own = labels_[samples_.size()];
    for (const auto& [name, value] : labels) {
      own.push_back({name.c_str(), value.c_str()});
    }
    samples_.push_back({own.data(), own.size(), 0, nullptr, nullptr, 0, 0});
    return samples_.back();
  }

  void add_histogram(const HistogramSample& sample) {
    Below& below = below_[histograms_++];
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < Histogram::kBounds; ++i) {
      sum += sample.histogram.counts()[i];
      below[i] = sum;
      bounds_[i] = sample.histogram.bound(i);
    }
    PlainSample& plain = begin(sample.labels);
    plain.value = sample.histogram.sum();
    plain.bounds = bounds_.data();
    plain.below = below.data();
    plain.bound_count = Histogram::kBounds;
    plain.count = sample.histogram.count();
  }

  std::vector<std::vector<PlainLabel>> labels_;  // by sample
  std::vector<PlainSample> samples_;
  std::vector<Below> below_;  // by histogram
  Bounds bounds_{};           // of all histograms of the family
  std::size_t histograms_ = 0;
};

}  // namespace

std::vector<Family> page_of(const Aggregate& aggregate, const ReaderState& reader,
                            std::span<const ReplacedCalls> replaced, const std::string& part, const std::string& job) {
  std::vector<Family> page;
  for (const auto& [rank, totals] : aggregate.ranks()) {
    for (Family& family : families(totals, reader, replaced)) {
      const Labels common = labels_of_rank(part, rank, job);
      label(family.samples, common);
      label(family.histograms, common);
      const auto same = [&](const Family& other) { return other.name == family.name; };
      const auto there = std::find_if(page.begin(), page.end(), same);
      if (there == page.end()) {
        page.push_back(std::move(family));
      } else {
        append(there->samples, family.samples);
        append(there->histograms, family.histograms);
      }
    }
  }
  return page;
}

void hand_over(std::span<const Family> families, void* page, AddFamily add) {
  static_assert(static_cast<int>(MetricType::counter) == 0 && static_cast<int>(MetricType::gauge) == 1 &&
                static_cast<int>(MetricType::histogram) == 2);
  for (const Family& family : families) {
    if (!family.samples.empty() || !family.histograms.empty()) {
      const Plain plain(family, page, add);
    }
  }
}

}  // namespace gradwire::watch

#include "watch/page/curves.hpp"

#include <numeric>

namespace gradwire::watch::page {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// The value below which a share of the values lies; sorts a part of them.
double quantile(std::vector<double>& values, double share) {
  const auto place = static_cast<std::ptrdiff_t>(std::lround(share * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + place, values.end());
  return values[static_cast<std::size_t>(place)];
}

}  // namespace

double value_at(const Column& times, const Column& values, double time) {
  const auto after = static_cast<std::size_t>(std::lower_bound(times.begin(), times.end(), time) - times.begin());
  if (after == times.size()) {
    return values.empty() ? 0 : values.back();
  }
  const double begin = after == 0 ? 0 : times[after - 1];
  const double from = after == 0 ? 0 : values[after - 1];
  const double span = times[after] - begin;
  return span > 0 ? from + (values[after] - from) * (time - begin) / span : values[after];
}

std::vector<double> spans_of(const Job& job) {
  constexpr double kMost = 100;
  double seconds = 1e-9;
  double samples = 0;
  for (const RankHistory& rank : job.ranks) {
    seconds = std::max(seconds, rank.time.back());
    samples = std::max(samples, static_cast<double>(rank.time.size()));
  }
  const double spans = std::clamp(std::min(samples - 1, std::floor(seconds)), 1.0, kMost);
  std::vector<double> ends;
  for (int i = 1; i <= static_cast<int>(spans); ++i) {
    ends.push_back(seconds * i / spans);
  }
  return ends;
}

void Gathered::add(std::size_t places, std::size_t place, double value) {
  values_.resize(places);
  if (std::isfinite(value)) {
    values_[place].push_back(value);
  }
}

Column Gathered::mean() const {
  Column means;
  for (const std::vector<double>& values : values_) {
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    means.push_back(values.empty() ? kNothing : sum / static_cast<double>(values.size()));
  }
  return means;
}

Band Gathered::band() {
  constexpr double kTenth = 0.1;
  Band band;
  for (std::vector<double>& values : values_) {
    band.low.push_back(values.empty() ? kNothing : quantile(values, kTenth));
    band.median.push_back(values.empty() ? kNothing : quantile(values, 1 / 2.0));
    band.high.push_back(values.empty() ? kNothing : quantile(values, 1 - kTenth));
  }
  return band;
}

std::map<std::string, Band> gauges_of(const Job& job, const std::vector<double>& times) {
  std::map<std::string, Gathered> all;
  for (const RankHistory& rank : job.ranks) {
    for (const auto& [name, values] : rank.gauges) {
      std::size_t next = 0;
      double latest = kNothing;
      for (std::size_t i = 0; i < times.size() && rank.time.back() >= times[i] - times.front() / 2; ++i) {
        for (; next < rank.time.size() && rank.time[next] <= times[i] + 1e-9; ++next) {
          latest = std::isfinite(values[next]) ? values[next] : latest;
        }
        all[name].add(times.size(), i, latest);
      }
    }
  }
  std::map<std::string, Band> bands;
  for (auto& [name, gathered] : all) {
    bands[name] = gathered.band();
  }
  return bands;
}

}  // namespace gradwire::watch::page

#include "drop_in/forecast.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "choice/link_measurement.hpp"
#include "gradwire/reduction.hpp"

namespace gradwire::drop_in {
namespace {

constexpr double kFar = 0.3;  // relative error of a class from which the fit says nothing about it
constexpr double kGain = choice::AutoCallOptions{}.gain;
constexpr double kShortCall = 5e-4;    // s: in shorter calls latencies and bursts count, which larger calls do not show
constexpr double kMemoryRate = 1e9;    // bytes per second: a faster link may be memory, unless hosts say otherwise
constexpr double kCallSeconds = 1e-5;  // of our own call, besides messages and codecs
constexpr double kTransportSeconds = 2.5e-10;  // of a core, for one byte, as in the cost model
constexpr double kLeastChunks = 4;             // of a shard with as many tiles
constexpr double kTileElements = 4096;

double ranks_share(int ranks) { return ranks > 1 ? (ranks - 1.0) / ranks : 0; }

// Hops of the job's call, and of the call that would stand in for it.
double job_hops(Function function) { return static_cast<double>(dense_bytes(function, 1, 2)); }

// Calls whose bytes and latencies a fit may compare.
struct Group {
  int communicator_size = 0;
  bool scatters = false;
  double hops = 0;
  friend auto operator<=>(const Group&, const Group&) = default;  // NOLINT(modernize-use-nullptr): false
};

Group group_of(const ObservedClass& what) {
  return {what.communicator_size, is_reduce_scatter(what.function), job_hops(what.function)};
}

// The speed of a codec, in seconds per byte of values.
struct CodecSpeed {
  double encode = 0;
  double decode = 0;
  double ratio = 1;
};

struct Parts {
  double wire = 0;
  double work = 0;  // time of a core
  double chunks = 1;
};

Parts parts_of(const ObservedClass& what, double bytes, const CodecSpeed& codec, double link_rate) {
  const int ranks = what.communicator_size;
  const double share = ranks_share(ranks);
  const double frames = frame_bytes_of(what, bytes, codec.ratio);
  Parts parts;
  parts.wire = frames / link_rate;
  parts.work = bytes * share * (codec.encode + codec.decode) + frames * kTransportSeconds;
  if (!is_reduce_scatter(what.function)) {
    parts.work += bytes * (codec.encode / ranks + codec.decode);
  }
  const double shard = bytes / ranks;
  const double tiles = shard / static_cast<double>(element_bytes(what.dtype)) / kTileElements;
  parts.chunks =
      std::max({1.0, std::min(kLeastChunks, tiles), shard / codec.ratio / static_cast<double>(kDefaultChunkBytes)});
  return parts;
}

// Returns the time if work and wire overlap, except for the first chunk, which passes through both.
double pipelined(const Parts& parts) {
  return std::max(parts.wire, parts.work) + std::min(parts.wire, parts.work) / parts.chunks;
}

struct Machines {
  double ranks_per_core = 1;
  int ranks = 0;          // ranks that said where they are
  bool one_host = false;  // all ranks are on it
};

Machines machines_of(const Observed& observed) {
  Machines machines;
  for (const auto& [name, host] : observed.hosts) {
    machines.ranks += host.ranks;
    machines.ranks_per_core =
        std::max(machines.ranks_per_core, static_cast<double>(host.ranks) / std::max(1, host.cores));
  }
  machines.one_host = observed.hosts.size() == 1 && machines.ranks > 1;
  return machines;
}

class Forecaster {
 public:
  explicit Forecaster(const Observed& observed) : machines_(machines_of(observed)) {
    std::map<Group, std::vector<choice::TimedSize>> sizes;
    for (const auto& [what, totals] : observed.classes) {
      if (job_hops(what.function) == 0 || what.communicator_size < 2) {
        continue;
      }
      add_sizes(sizes[group_of(what)], what, totals);
    }
    for (const auto& [group, timed] : sizes) {
      fits_[group] = choice::fit_link(timed);
    }
    sizes_ = std::move(sizes);
  }

  [[nodiscard]] ForecastClass operator()(const ObservedClass& what, const ObservedTotals& totals) const {
    ForecastClass one = values_of(what, totals);
    const double bytes = one.bytes;
    const auto fit = fits_.find(group_of(what));
    const bool fitted = fit != fits_.end() && fit->second.has_value() && holds(*fit->second, what, one);
    const bool exchanged = totals.transfer && totals.transfer->dense_seconds > 0 && totals.transfer->frame_bytes > 0;
    if (!one.ratio || totals.sampled.bytes <= 0 || (!fitted && !exchanged) || bytes <= 0) {
      return one;
    }
    const CodecSpeed codec{.encode = totals.sampled.encode_seconds / totals.sampled.bytes * machines_.ranks_per_core,
                           .decode = totals.sampled.decode_seconds / totals.sampled.bytes * machines_.ranks_per_core,
                           .ratio = *one.ratio};
    double latency = fitted ? fit->second->latency_seconds : 0;
    double rate = fitted ? fit->second->bytes_per_second : 0;
    if (exchanged) {
      // The exchange includes its latency, which stays the same if a call is a little larger or smaller.
      const ObservedTotals::Transfer& transfer = *totals.transfer;
      latency = std::min(latency, transfer.frame_seconds / 2);
      rate = transfer.frame_bytes / (transfer.frame_seconds - latency);
      one.passed_seconds = transfer.dense_seconds * bytes / transfer.dense_bytes;
    }
    const Parts parts = parts_of(what, bytes, codec, rate);
    double seconds = kCallSeconds + latency + pipelined(parts);
    if (!exchanged && seconds < kShortCall) {
      const double least = least_seconds(what, frame_bytes_of(what, bytes, codec.ratio));
      if (least == 0) {
        return one;
      }
      seconds = std::max(seconds, least);
    }
    one.compressed_seconds = seconds;
    judge(one, kCallSeconds + latency + parts.wire + parts.work, rate);
    return one;
  }

 private:
  static void add_sizes(std::vector<choice::TimedSize>& timed, const ObservedClass& what,
                        const ObservedTotals& totals) {
    for (const ObservedTotals::Size& size : totals.sizes) {
      if (size.calls > 0 && size.quick_seconds > 0 && size.bytes > 0) {
        timed.push_back({.bytes = size.bytes / static_cast<double>(size.calls) * ranks_share(what.communicator_size) *
                                  job_hops(what.function),
                         .seconds = size.quick_seconds,
                         .weight = std::sqrt(static_cast<double>(size.calls) * size.quick_seconds)});
      }
    }
  }

  // Returns the longest time that the library took for no more bytes than these; 0 if it was not seen with so few.
  [[nodiscard]] double least_seconds(const ObservedClass& what, double frame_bytes) const {
    double least = 0;
    for (const choice::TimedSize& size : sizes_.at(group_of(what))) {
      least = size.bytes <= frame_bytes ? std::max(least, size.seconds) : least;
    }
    return least;
  }

  [[nodiscard]] static bool holds(const exchange::LinkCost& line, const ObservedClass& what, const ForecastClass& one) {
    const double bytes = one.bytes * ranks_share(what.communicator_size) * job_hops(what.function);
    const double expected = line.latency_seconds + bytes / line.bytes_per_second;
    return std::abs(expected / one.passed_seconds - 1) <= kFar;
  }

  static ForecastClass values_of(const ObservedClass& what, const ObservedTotals& totals) {
    ForecastClass one{.what = what, .codec = totals.codec, .calls = totals.calls()};
    double quick = 0;
    for (const ObservedTotals::Size& size : totals.sizes) {
      quick += size.quick_seconds * static_cast<double>(size.calls);
    }
    if (one.calls > 0) {
      one.bytes = totals.bytes() / static_cast<double>(one.calls);
      one.passed_seconds = quick / static_cast<double>(one.calls);
    }
    const SampledValues& sampled = totals.sampled;
    const auto over = [](double part, double all) { return all > 0 ? std::optional(part / all) : std::nullopt; };
    one.ratio = over(sampled.bytes, sampled.frame_bytes);
    one.zeroed_share = over(sampled.zeroed, sampled.elements);
    one.small_nmse = over(sampled.small_squared_error, sampled.small_squared_norm);
    if (sampled.squared_norm > 0) {
      one.relative_error = std::sqrt(sampled.squared_error / sampled.squared_norm);
    }
    return one;
  }

  // Reports a gain only if there would be one even without any overlap; between the two cases nobody knows. If only
  // some of the job's ranks reported, nobody knows either whether they share a host.
  void judge(ForecastClass& one, double one_after_the_other, double rate) const {
    const double least = (1 - kGain) * one.passed_seconds;
    if (machines_.one_host || *one.compressed_seconds >= least) {
      one.saved_seconds = 0;
    } else if (one_after_the_other < least && (machines_.ranks == one.what.communicator_size || rate < kMemoryRate)) {
      one.saved_seconds = one.passed_seconds - *one.compressed_seconds;
    }
  }

  Machines machines_;
  std::map<Group, std::vector<choice::TimedSize>> sizes_;
  std::map<Group, std::optional<exchange::LinkCost>> fits_;
};

}  // namespace

double frame_bytes_of(const ObservedClass& what, double bytes, double ratio) {
  return ranks_share(what.communicator_size) * bytes / ratio * (is_reduce_scatter(what.function) ? 1 : 2);
}

Forecast forecast_of(const Observed& observed) {
  Forecast forecast;
  const Forecaster forecaster(observed);
  for (const auto& [what, totals] : observed.classes) {
    if (totals.codec.empty() || totals.calls() == 0) {
      continue;
    }
    const ForecastClass one = forecaster(what, totals);
    if (one.saved_seconds) {
      forecast.saved_seconds = forecast.saved_seconds.value_or(0) + *one.saved_seconds * static_cast<double>(one.calls);
    }
    forecast.classes.push_back(one);
  }
  const auto bytes = [](const ForecastClass& one) { return one.bytes * static_cast<double>(one.calls); };
  std::stable_sort(forecast.classes.begin(), forecast.classes.end(),
                   [&](const ForecastClass& a, const ForecastClass& b) { return bytes(a) > bytes(b); });
  return forecast;
}

}  // namespace gradwire::drop_in

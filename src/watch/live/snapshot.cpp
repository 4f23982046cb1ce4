#include "watch/live/snapshot.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string_view>
#include <tuple>

#include "base/emulated_link.hpp"
#include "base/text.hpp"
#include "gradwire/error.hpp"

namespace gradwire::watch::live {
namespace {

constexpr std::size_t kVersions = 24;  // two minutes of a running job

constexpr double kStalledSeconds = 10;

// Metrics whose samples add up to one counter.
constexpr std::array<std::pair<std::string_view, double RankCounters::*>, 14> kSums{{
    {"gradwire_events_total", &RankCounters::events},
    {"gradwire_step_seconds_count", &RankCounters::steps},
    {"gradwire_step_seconds_sum", &RankCounters::step_seconds},
    {"gradwire_step_exposed_seconds_count", &RankCounters::waits},
    {"gradwire_step_exposed_seconds_sum", &RankCounters::exposed_seconds},
    {"gradwire_steps_total", &RankCounters::steps_published},
    {"gradwire_calls_total", &RankCounters::calls},
    {"gradwire_bytes_sent_total", &RankCounters::bytes_sent},
    {"gradwire_bytes_uncompressed_total", &RankCounters::bytes_uncompressed},
    {"gradwire_replaced_bytes_sent_total", &RankCounters::bytes_sent},
    {"gradwire_replaced_calls_total", &RankCounters::replaced_calls},
    {"gradwire_replaced_seconds_total", &RankCounters::replaced_seconds},
    {"gradwire_errors_total", &RankCounters::errors},
    {"gradwire_events_dropped_total", &RankCounters::dropped},
}};

int number_of_rank(std::string_view text) {
  int rank = -1;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (problem != std::errc() || end != text.data() + text.size() || rank < 0) {
    throw Error(ErrorCode::invalid_argument, "the label rank is " + text::quote(text) + ", which is no rank");
  }
  return rank;
}

// The codecs of groups, most bytes first; for "auto" the one that most buckets use.
std::string codecs_in_use(std::span<const TextSample> samples) {
  std::map<std::string, double> bytes;
  std::map<std::string, double> chosen;
  for (const TextSample& sample : samples) {
    if (sample.name == "gradwire_bytes_in_total") {
      bytes[std::string(sample.label("codec"))] += sample.value;
    } else if (sample.name == "gradwire_codec_buckets") {
      chosen[std::string(sample.label("codec"))] += sample.value;
    }
  }
  std::vector<std::pair<double, std::string>> order;
  order.reserve(bytes.size());
  for (const auto& [codec, sum] : bytes) {
    order.emplace_back(-sum, codec);
  }
  std::sort(order.begin(), order.end());
  const auto most =
      std::max_element(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text;
  for (const auto& [sum, codec] : order) {
    const bool automatic = codec == "auto" && most != chosen.end() && most->second > 0;
    text += (text.empty() ? "" : ",") + codec + (automatic ? ":" + most->first : "");
  }
  return text;
}

// The rank and the job of a file, which has the same labels on each of its samples.
std::pair<RankName, std::string> rank_and_job(std::span<const TextSample> samples) {
  if (samples.empty()) {
    throw Error(ErrorCode::invalid_argument, "there is no metric in it");
  }
  const TextSample& first = samples.front();
  for (const TextSample& sample : samples) {
    if (sample.label("rank").empty() || sample.label("rank") != first.label("rank") ||
        sample.label("part") != first.label("part") || sample.label("gradwire_job") != first.label("gradwire_job")) {
      throw Error(ErrorCode::invalid_argument,
                  sample.name +
                      " has not the labels part, rank and gradwire_job of all others, so it is not a file of gradwire");
    }
  }
  return {{std::string(first.label("part")), number_of_rank(first.label("rank"))},
          std::string(first.label("gradwire_job"))};
}

std::optional<double> over(double part, double whole) { return whole > 0 ? std::optional(part / whole) : std::nullopt; }

}  // namespace

RankValues rank_values(std::span<const TextSample> samples, double written) {
  RankValues values;
  std::tie(values.name, values.job) = rank_and_job(samples);
  values.written = written;
  for (const TextSample& sample : samples) {
    if (sample.name == "gradwire_world_size") {
      values.world_size = sample.value >= 1 && sample.value <= 1e9 ? static_cast<int>(sample.value) : 1;
    } else if (sample.name == "gradwire_info") {
      values.emulated_link = emulated_link_in(sample.label("transport"));
    } else if (sample.name == "gradwire_job_ended") {
      values.ended = sample.value != 0;
    } else if (sample.name == "gradwire_rank_slow") {
      values.slow = values.slow.value_or(false) || sample.value != 0;
    }
    const auto* const found =
        std::find_if(kSums.begin(), kSums.end(), [&](const auto& sum) { return sum.first == sample.name; });
    if (found == kSums.end()) {
      continue;
    }
    if (!std::isfinite(sample.value) || sample.value < 0) {
      throw Error(ErrorCode::invalid_argument, sample.name + " counts, and is below 0 or not finite");
    }
    values.counters.*found->second += sample.value;
    if (sample.name == "gradwire_bytes_sent_total") {
      values.has_tiers = true;
      (sample.label("tier") == "inter" ? values.counters.bytes_inter : values.counters.bytes_intra) += sample.value;
    }
  }
  values.codec = codecs_in_use(samples);
  return values;
}

bool is_another_job(const RankValues& before, const RankValues& now) {
  return before.job != now.job || (before.ended && !now.ended) ||
         std::any_of(kCounters.begin(), kCounters.end(),
                     [&](auto counter) { return now.counters.*counter < before.counters.*counter; });
}

Rates rates_between(const RankValues* before, const RankValues& now) {
  if (before != nullptr && (is_another_job(*before, now) || now.written <= before->written)) {
    before = nullptr;
  }
  RankCounters grown = now.counters;
  Rates rates;
  if (before != nullptr) {
    rates.seconds = now.written - before->written;
    for (const auto counter : kCounters) {
      grown.*counter -= before->counters.*counter;
    }
  }
  // Uses the time from step to step, so that the moments at which files are written do not matter.
  rates.steps = over(grown.steps, grown.step_seconds);
  if (before != nullptr && !rates.steps && now.counters.waits > 0) {
    rates.steps = 0;
  }
  if (rates.steps && grown.waits > 0) {
    rates.exposed = std::min(1.0, grown.exposed_seconds / grown.waits * *rates.steps);
  }
  // Seconds in which the bytes were sent; since the start only those of steps are known.
  double seconds = rates.seconds;
  if (before == nullptr && rates.steps && *rates.steps > 0) {
    seconds = grown.steps_published / *rates.steps;
  }
  if (now.counters.bytes_sent > 0 || now.has_tiers) {
    rates.sent = over(grown.bytes_sent, seconds);
  }
  if (now.has_tiers) {
    rates.intra = over(grown.bytes_intra, seconds);
    rates.inter = over(grown.bytes_inter, seconds);
  }
  if (now.counters.replaced_calls > 0) {
    rates.calls = over(grown.replaced_calls, rates.seconds);
    if (now.counters.waits == 0 && rates.seconds > 0) {  // a job without steps: its calls return when they are done
      rates.exposed = std::min(1.0, grown.replaced_seconds / rates.seconds);
    }
  }
  if (grown.bytes_uncompressed > 0) {
    rates.ratio = over(grown.bytes_uncompressed, grown.bytes_sent);
  } else if (now.counters.bytes_uncompressed > 0) {
    rates.ratio = over(now.counters.bytes_uncompressed, now.counters.bytes_sent);
  }
  return rates;
}

void RateTracker::take(std::span<const RankValues> ranks) {
  std::set<RankName> seen;
  for (const RankValues& rank : ranks) {
    seen.insert(rank.name);
    std::deque<RankValues>& versions = versions_[rank.name];
    if (!versions.empty() && is_another_job(versions.back(), rank)) {
      versions.clear();
    }
    if (versions.empty() || rank.written > versions.back().written) {
      versions.push_back(rank);
    }
    if (versions.size() > kVersions) {
      versions.pop_front();
    }
  }
  std::erase_if(versions_, [&](const auto& entry) { return !seen.contains(entry.first); });
}

Rates RateTracker::rates(const RankName& rank) const {
  const auto found = versions_.find(rank);
  if (found == versions_.end()) {
    return {};
  }
  const std::deque<RankValues>& versions = found->second;
  const RankValues& now = versions.back();
  if (versions.size() == 1) {
    return rates_between(nullptr, now);
  }
  if (is_stalled(rank)) {
    return rates_between(&versions[versions.size() - 2], now);
  }
  const auto earlier = std::find_if(versions.rbegin() + 1, versions.rend(), [&](const RankValues& version) {
    return version.counters.steps < now.counters.steps || now.counters.waits == 0;
  });
  return rates_between(earlier == versions.rend() ? &versions.front() : &*earlier, now);
}

bool RateTracker::is_stalled(const RankName& rank) const {
  const auto found = versions_.find(rank);
  if (found == versions_.end() || found->second.back().ended || found->second.back().counters.waits == 0) {
    return false;
  }
  const RankValues& now = found->second.back();
  const auto same = std::find_if(found->second.begin(), found->second.end(), [&](const RankValues& version) {
    return version.counters.waits == now.counters.waits;
  });
  const double step = over(now.counters.step_seconds, now.counters.steps).value_or(kStalledSeconds);
  return now.written - same->written >= std::max(kStalledSeconds, 3 * step);
}

}  // namespace gradwire::watch::live

// How a reducer learns a call's time and error beside those of the library's own call: trials and samples.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "base/current_error.hpp"
#include "base/elapsed.hpp"
#include "codec/codec.hpp"
#include "drop_in/host_reducer.hpp"
#include "gradwire/transport.hpp"
#include "transport/operations.hpp"

namespace gradwire::drop_in {
namespace {

using Clock = std::chrono::steady_clock;

// Share of a call's elements in a sample: one in 256 is a percent of what an uncompressed call sends; with a bound one
// in 16.
constexpr std::uint64_t kSampleShare = 256;
constexpr std::uint64_t kBoundedShare = 16;
constexpr std::uint64_t kMostSampled = 16 * codec::kTileElements;

std::uint64_t bytes_of(ConstView view) { return view.count * element_bytes(view.dtype); }

}  // namespace

bool HostReducer::take_scratch(std::uint64_t bytes) noexcept {
  if (bytes > most_copied_) {
    return false;
  }
  try {
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    return true;
  } catch (...) {
    return false;
  }
}

void HostReducer::begin_trial(const Route& route, ConstView input, bool in_place, std::span<const std::uint64_t> counts,
                              Reduction reduction) noexcept {
  if (!in_trial_) {
    return;
  }
  try {
    const std::uint64_t bytes = bytes_of(input);
    const auto begin = Clock::now();
    Trial& trial = trial_.emplace(Trial{});
    trial.route = route;
    trial.route.feedback = nullptr;  // the job gets no result of ours from which something was left out
    trial.input = input;
    trial.counts.assign(counts.begin(), counts.end());
    trial.reduction = reduction;
    const std::uint64_t own = counts.empty() ? input.count : counts[static_cast<std::size_t>(communicator().rank())];
    trial.output = {scratch_.get() + bytes, own, input.dtype};
    trial.seconds.resize(route.ways.size() + 1);
    trial.differences.resize(route.ways.size());
    std::memset(trial.output.data, 0, own * element_bytes(input.dtype));  // maps the pages here, not in our call
    if (in_place && route.turn.passed_first) {
      std::memcpy(scratch_.get(), input.data, bytes);
      trial.input.data = scratch_.get();
    }
    trial.copying = seconds_since(begin);
    if (!route.turn.passed_first) {
      make_compressed(trial, {});
      communicator().barrier();
    }
  } catch (...) {
    fail_trial(current_error());
  }
}

void HostReducer::end_trial(double library_seconds, ConstView result) noexcept {
  if (!trial_) {
    return drop_trial();
  }
  try {
    Trial& trial = *trial_;
    trial.seconds[0] = library_seconds;
    if (trial.route.turn.passed_first) {
      communicator().barrier();
      make_compressed(trial, result);
    } else if (trial.route.max_error && result.count == trial.output.count) {
      trial.differences.front() = difference_of(trial.output.data, result.data, result.count, result.dtype);
    }
    share(trial);
    in_trial_ = false;
    trial_.reset();
    scratch_.reset();
  } catch (...) {
    fail_trial(current_error());
  }
}

// Makes the call by each codec in turn, the last one first if the library's own call comes last.
void HostReducer::make_compressed(Trial& trial, ConstView result) {
  for (std::size_t i = 0; i < trial.route.ways.size(); ++i) {
    const std::size_t way = trial.route.turn.passed_first ? i : trial.route.ways.size() - 1 - i;
    if (i > 0) {
      communicator().barrier();
    }
    make_way(trial, way);
    if (trial.route.max_error && result.count > 0 && result.count == trial.output.count) {
      trial.differences[way] = difference_of(trial.output.data, result.data, result.count, result.dtype);
    }
  }
}

void HostReducer::make_way(Trial& trial, std::size_t way) {
  const CallOptions how = options(trial.route, trial.route.ways[way], trial.reduction);
  const auto begin = Clock::now();
  if (trial.counts.empty()) {
    communicator().all_reduce(trial.input, trial.output, how);
  } else {
    communicator().reduce_scatter(trial.input, trial.output, trial.counts, how);
  }
  trial.seconds[way + 1] = seconds_since(begin);
}

// All ranks learn the slowest rank's times, and the error of the whole result. A rank that gets here knows that no
// rank's part of the trial has failed.
void HostReducer::share(const Trial& trial) {
  std::vector<double> mine = trial.seconds;
  mine.push_back(trial.copying);
  const std::size_t times = mine.size();
  for (const Difference& one : trial.differences) {
    mine.insert(mine.end(), {one.difference, one.norm});
  }
  const std::vector<double> all = gather(mine);
  std::vector<double> worst(times, 0);
  std::vector<Difference> sums(trial.differences.size());
  for (std::size_t at = 0; at < all.size(); at += mine.size()) {
    for (std::size_t i = 0; i < times; ++i) {
      worst[i] = std::max(worst[i], all[at + i]);
    }
    for (std::size_t way = 0; way < sums.size(); ++way) {
      sums[way].add({.difference = all[at + times + 2 * way], .norm = all[at + times + 2 * way + 1]});
    }
  }
  std::vector<std::optional<double>> errors;
  errors.reserve(sums.size());
  for (const Difference& sum : sums) {
    errors.push_back(trial.route.max_error ? sum.relative() : std::nullopt);
  }
  router_.trial_made(trial.route, std::span(worst).first(times - 1), worst.back(), errors);
}

void HostReducer::fail_trial(const Error& error) noexcept {
  in_trial_ = false;
  trial_.reset();
  scratch_.reset();
  if (communicator_) {
    communicator_->transport().abort(error);
  }
  router_.set_aside(error.what());
}

void HostReducer::abort(const Error& error) noexcept {
  try {
    communicator().transport().abort(error);
  } catch (...) {  // NOLINT(bugprone-empty-catch): nothing connects the ranks, so nobody waits
  }
}

void HostReducer::drop_trial() noexcept {
  if (!in_trial_) {
    return;
  }
  try {
    fail_trial(Error(ErrorCode::aborted, "the library's own call failed while it was compared with a compressed one"));
  } catch (...) {
    router_.set_aside({});
  }
}

std::optional<CallSample> HostReducer::keep_sample(const Route& route, ConstView input) {
  if (!route.sample) {
    return std::nullopt;
  }
  const std::uint64_t share = route.max_error ? kBoundedShare : kSampleShare;
  return CallSample(input, std::clamp(input.count / share, CallSample::kBlock, kMostSampled), *route.sample);
}

std::optional<double> HostReducer::check(const CallSample& sample, ConstView result,
                                         std::span<const std::uint64_t> counts, Reduction reduction,
                                         Statistics& statistics) {
  const ConstView kept = sample.kept();
  std::vector<std::byte> exact(bytes_of(kept));
  const Statistics sums = communicator().all_reduce(
      kept, {exact.data(), kept.count, kept.dtype},
      {.codec = CodecSpec::exact(), .algorithm = Algorithm::two_shot, .reduction = reduction});
  statistics.bytes_sent += sums.bytes_sent;
  statistics.total_seconds += sums.total_seconds;
  if (counts.empty()) {
    return sample.compare(exact.data(), result, 0).relative();  // the same on every rank, as the results are
  }
  const auto before = counts.first(static_cast<std::size_t>(communicator().rank()));
  const Difference here =
      sample.compare(exact.data(), result, std::accumulate(before.begin(), before.end(), std::uint64_t{0}));
  const std::vector<double> all = gather(std::array{here.difference, here.norm});
  statistics.bytes_sent += gathered_bytes_;
  Difference sum;
  for (std::size_t at = 0; at < all.size(); at += 2) {
    sum.add({.difference = all[at], .norm = all[at + 1]});
  }
  return sum.relative();
}

void HostReducer::look_at_small_values(const Route& route, const CallSample& sample) {
  if (route.stage.error_feedback || route.stage.codec.k != 0) {
    return;  // nothing is lost for ever, or topk is meant to lose it
  }
  router_.count_small_values(route, sample.small_values(codec::Codec(route.stage.codec, sample.kept().dtype)));
}

}  // namespace gradwire::drop_in

#include "drop_in/observation.hpp"

#include <time.h>  // NOLINT(modernize-deprecated-headers): POSIX clocks

#include <algorithm>
#include <bit>
#include <cmath>
#include <exception>
#include <iterator>
#include <new>
#include <thread>
#include <utility>

#include "base/elapsed.hpp"
#include "base/median.hpp"
#include "drop_in/calls.hpp"
#include "drop_in/value_sample.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::drop_in {
namespace {

constexpr std::uint64_t kNotesToOneTimed = 16;
constexpr std::size_t kMostKept = 32;         // times of one size
constexpr std::size_t kMostSamples = 24;      // of one class
constexpr double kSamplesOfRun = 5e-3;        // share of the run
constexpr double kNotesOfRun = 2.5e-3;        // share of the run
constexpr double kLeastRun = 0.25;            // seconds: in a shorter run notes may take a larger share
constexpr double kClockSeconds = 6e-8;        // seconds that the caller of note() takes for two looks at a clock
constexpr double kLongestNote = 2e-6;         // seconds: a longer note was interrupted
constexpr double kLongestLook = 1e-5;         // seconds: a longer look was interrupted
constexpr std::uint32_t kMostSkipped = 1023;  // as a mean
constexpr double kLeastCall = 1e-8;           // seconds
constexpr double kFirstGuess = 2e-9;          // seconds that sampling a byte takes, before one was sampled
constexpr std::size_t kLeastSample = std::size_t{64} << 10;  // bytes, unless a call has fewer

// A call is looked at where the fractional part of its number times the golden ratio is below 1/2^halvings. Such calls
// are spread evenly over the run, are out of step with any period of the program, and are among those that fewer
// halvings select. By the three-distance theorem two of them that follow each other are a Fibonacci number apart.
std::uint64_t gap_to_next_look(std::uint64_t call, unsigned halvings) {
  constexpr std::uint32_t kGolden = 0x9e3779b9;
  const auto is_look = [below = UINT32_MAX >> halvings](std::uint64_t number) {
    return static_cast<std::uint32_t>(number) * kGolden <= below;
  };
  std::uint64_t gap = 1;
  if (!is_look(call)) {  // the first call, or `halvings` has grown
    while (!is_look(call + gap)) {
      ++gap;
    }
    return gap;
  }
  for (std::uint64_t next = 2; !is_look(call + gap);) {
    gap = std::exchange(next, gap + next);
  }
  return gap;
}

// Returns the time of a core: what other threads do meanwhile is no cost of a sample.
double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns the two bits below the highest one.
std::size_t quarter_of(std::uint64_t bytes) {
  const auto width = static_cast<int>(std::bit_width(bytes));
  return width < 3 ? 0 : static_cast<std::size_t>((bytes >> (width - 3)) & 3U);
}

double lower_quartile(std::vector<float> values) {
  if (values.empty()) {
    return 0;
  }
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Returns the codec that sends least among those that auto may choose, or a named codec as it is after its warm-up.
std::optional<CodecSpec> codec_for(const plan::CallPlanner& planner, const ObservedClass& what, std::uint64_t bytes) {
  const std::size_t each = element_bytes(what.dtype);
  if (each == 0 || what.communicator_size < 2) {
    return std::nullopt;
  }
  const plan::CallPlan plan =
      planner.resolve({.count = bytes / each,
                       .dtype = what.dtype,
                       .communicator_size = static_cast<std::uint32_t>(what.communicator_size)});
  if (!plan.compress()) {
    return std::nullopt;
  }
  if (plan.policy.is_auto()) {
    return plan.ways.empty() ? std::nullopt : std::optional(plan.ways.back().codec);
  }
  return plan.stages.back().codec;
}

// Adds up the samples. The speed of the codec is their median, since single samples may be disturbed.
SampledValues sum_of(const std::vector<SampledValues>& samples) {
  SampledValues sum;
  std::vector<double> encode;
  std::vector<double> decode;
  for (const SampledValues& one : samples) {
    sum.add(one);
    encode.push_back(one.encode_seconds / one.bytes);
    decode.push_back(one.decode_seconds / one.bytes);
  }
  if (!samples.empty()) {
    sum.encode_seconds = upper_median(encode) * sum.bytes;
    sum.decode_seconds = upper_median(decode) * sum.bytes;
  }
  return sum;
}

}  // namespace

Observation::Observation(const plan::CallPlanner& planner) : planner_(planner), seconds_a_byte_(kFirstGuess) {}

Observation::Class* Observation::class_of(const ObservedClass& what, std::uint64_t bytes) {
  auto found = classes_.find(what);
  if (found == classes_.end()) {
    if (classes_.size() >= kMostClasses) {
      return nullptr;
    }
    found = classes_.try_emplace(what).first;
    found->second.codec = codec_for(planner_, what, bytes);
  }
  return &found->second;
}

bool Observation::wants_note() noexcept {
  const std::uint32_t left = skip_.load(std::memory_order_relaxed);
  if (left == 0) {
    return true;
  }
  skip_.store(left - 1, std::memory_order_relaxed);  // another thread's decrement may be lost: it skips one more
  skipped_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void Observation::note_locked(const ObservedClass& what, std::uint64_t bytes, double seconds, std::uint64_t weight) {
  Class* one = class_of(what, bytes);
  if (one == nullptr) {
    return;
  }
  one->calls += weight;
  Timed& timed = one->sizes.at(quarter_of(bytes));
  if (timed.noted++ % timed.every == 0) {
    if (timed.kept.size() == kMostKept) {  // every other time is dropped
      for (std::size_t i = 0; i < kMostKept / 2; ++i) {
        timed.kept[i] = timed.kept[2 * i];
      }
      timed.kept.resize(kMostKept / 2);
      timed.every *= 2;
    }
    timed.kept.push_back(static_cast<float>(seconds));
  }
  timed.calls += weight;
  timed.bytes += static_cast<double>(weight * bytes);
  timed.seconds += static_cast<double>(weight) * seconds;
}

void Observation::note(const ObservedClass& what, std::uint64_t bytes, double seconds) {
  if (!wants_note()) {
    return;
  }
  const MutexLock lock(mutex_);
  const std::uint64_t weight = 1 + skipped_.exchange(0, std::memory_order_relaxed);
  if (notes_++ % kNotesToOneTimed != 0) {
    note_locked(what, bytes, seconds, weight);
  } else {
    const Clock::time_point begin = Clock::now();
    note_locked(what, bytes, seconds, weight);
    timed_notes_seconds_ += std::min(seconds_since(begin), kLongestNote);
    choose_skips();
  }
  // The number is pseudo-random, so that all calls that take turns are seen.
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
  skip_.store(mean_skip_ == 0 ? 0 : static_cast<std::uint32_t>((notes_ * kGolden >> 32U) % (2 * mean_skip_ + 1)),
              std::memory_order_relaxed);
}

void Observation::note_for(const ObservedClass& what, std::uint64_t bytes, double seconds, std::uint64_t calls) {
  const MutexLock lock(mutex_);
  note_locked(what, bytes, seconds, calls);
}

std::uint64_t Observation::next_look(std::uint64_t call, double cost, double call_seconds) noexcept {
  const MutexLock lock(mutex_);
  const double whole = std::min(cost + kClockSeconds, kLongestLook);
  looks_seconds_ += whole;
  if (call == 1) {  // the first look made what later ones find
    return 0;
  }
  later_looks_seconds_ += whole;
  const double mean = later_looks_seconds_ / static_cast<double>(++later_looks_);
  const double every = std::clamp(mean / (kNotesOfRun * std::max(call_seconds, kLeastCall)), 1.0, double{kMostSkipped});
  return gap_to_next_look(call,
                          static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(std::ceil(every)) - 1))) -
         1;
}

double Observation::note_seconds() const noexcept {
  return timed_notes_seconds_ * static_cast<double>(kNotesToOneTimed) + kClockSeconds * static_cast<double>(notes_) +
         looks_seconds_;
}

void Observation::choose_skips() {
  const double share = note_seconds() / std::max(seconds_since(begin_), kLeastRun);
  if (share > kNotesOfRun) {
    mean_skip_ = std::min(2 * mean_skip_ + 1, kMostSkipped);
  } else if (share < kNotesOfRun / 2) {
    mean_skip_ /= 2;
  }
}

std::size_t Observation::affordable_bytes() const noexcept {
  const double left = kSamplesOfRun * seconds_since(begin_) - sample_seconds_;
  return left <= 0 ? 0 : static_cast<std::size_t>(std::min<double>(left / seconds_a_byte_, kMostSampledBytes));
}

bool Observation::wants_sample(const ObservedClass& what) noexcept {
  try {
    const MutexLock lock(mutex_);
    const auto found = classes_.find(what);
    if (sampling_ || found == classes_.end() || !found->second.codec ||
        found->second.calls < found->second.next_sample || found->second.samples.size() >= kMostSamples) {
      return false;
    }
    return affordable_bytes() >=
           std::min<std::size_t>(kLeastSample, std::size_t{1} << std::min<unsigned>(what.size, 30U));
  } catch (const std::exception&) {
    return false;
  }
}

void Observation::sample(const ObservedClass& what, ConstView input) {
  std::optional<CodecSpec> codec;
  std::size_t bytes = 0;
  {
    const MutexLock lock(mutex_);
    const auto found = classes_.find(what);
    if (found == classes_.end() || !found->second.codec || sampling_) {
      return;
    }
    codec = found->second.codec;
    bytes = std::max(affordable_bytes(), kLeastSample);
    sampling_ = true;
  }
  const double begin = thread_seconds();
  SampledValues values;
  try {
    values = sample_values(*codec, input, bytes);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory, or no such codec: it stays unknown
  }
  const double seconds = thread_seconds() - begin;
  const MutexLock lock(mutex_);
  sampling_ = false;
  sample_seconds_ += seconds;
  Class& one = classes_.at(what);
  one.next_sample = one.calls + one.calls / 2 + 1;  // samples become rarer with time
  if (values.samples > 0) {
    seconds_a_byte_ = seconds / values.bytes;
    one.samples.push_back(values);
  }
}

std::vector<Observation::Candidate> Observation::largest(std::size_t most) const {
  std::vector<std::pair<double, Candidate>> all;  // with the bytes of all calls
  const Observed seen = observed();
  for (const auto& [what, totals] : seen.classes) {
    const SampledValues& sampled = totals.sampled;
    if (totals.codec.empty() || totals.calls() == 0 || sampled.frame_bytes <= 0) {
      continue;
    }
    const double bytes = totals.bytes() / static_cast<double>(totals.calls());
    const double frames = frame_bytes_of(what, bytes, sampled.bytes / sampled.frame_bytes);
    all.emplace_back(totals.bytes(), Candidate{.what = what,
                                               .bytes = static_cast<std::uint64_t>(bytes),
                                               .frame_bytes = static_cast<std::uint64_t>(frames)});
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  all.resize(std::min(all.size(), most));
  std::vector<Candidate> candidates;
  std::transform(all.begin(), all.end(), std::back_inserter(candidates), [](const auto& one) { return one.second; });
  return candidates;
}

void Observation::measured_transfer(const ObservedClass& what, std::uint64_t dense_bytes, double dense_seconds,
                                    std::uint64_t frame_bytes, double frame_seconds) {
  const MutexLock lock(mutex_);
  Class* one = class_of(what, dense_bytes);
  if (one != nullptr) {
    one->transfer = {.dense_bytes = static_cast<double>(dense_bytes),
                     .dense_seconds = dense_seconds,
                     .frame_bytes = static_cast<double>(frame_bytes),
                     .frame_seconds = frame_seconds};
  }
}

Observed Observation::observed() const {
  Observed all;
  const MutexLock lock(mutex_);
  for (const auto& [what, one] : classes_) {
    ObservedTotals totals{
        .codec = one.codec ? one.codec->to_string() : "", .sampled = sum_of(one.samples), .transfer = one.transfer};
    for (std::size_t i = 0; i < totals.sizes.size(); ++i) {
      const Timed& timed = one.sizes.at(i);
      totals.sizes.at(i) = {.calls = timed.calls,
                            .bytes = timed.bytes,
                            .seconds = timed.seconds,
                            .quick_seconds = lower_quartile(timed.kept)};
    }
    all.classes.try_emplace(what, std::move(totals));
  }
  all.hosts[transport::tcp::host_identity()] = {
      .ranks = 1, .cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))};
  all.run_seconds = seconds_since(begin_);
  all.cost_seconds = sample_seconds_ + note_seconds();
  return all;
}

double Observation::cost_seconds() const noexcept {
  const MutexLock lock(mutex_);
  return sample_seconds_ + note_seconds();
}

}  // namespace gradwire::drop_in

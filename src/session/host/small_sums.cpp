#include "session/host/small_sums.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/awake_time.hpp"
#include "base/units.hpp"
#include "codec/codec.hpp"
#include "exchange/resolved_call.hpp"
#include "observe/record.hpp"
#include "transport/operations.hpp"
#include "transport/silence.hpp"

namespace gradwire::session {
namespace {

// Looks for results without sleeping, for about a millisecond: peers that call finish() at the same time answer within
// few looks.
constexpr int kEagerLooks = 2000;
constexpr int kYieldsAt = 16;  // every so many looks, if ranks have cores of their own
constexpr std::chrono::milliseconds kSleep{1};

codec::Working working_of(DType dtype) { return dtype == DType::f64 ? codec::Working::f64 : codec::Working::f32; }

std::uint64_t step_bytes(const plan::Bucket& bucket) { return bucket.count * element_bytes(bucket.dtype); }

}  // namespace

SmallSums::SmallSums(Transport& transport, Reduction reduction, std::chrono::milliseconds timeout, Options options)
    : transport_(transport), reduction_(reduction), timeout_(timeout), options_(options) {}

bool SmallSums::are_small(const plan::Plan& plan) {
  std::uint64_t bytes = 0;
  for (const plan::Bucket& bucket : plan.buckets) {
    bytes += step_bytes(bucket);
  }
  return bytes < exchange::kNativeBelowBytes;  // so the executor would sum each bucket natively too
}

void SmallSums::prepare(const plan::Plan& plan) {
  constexpr std::uint64_t kLine = 64;
  std::vector<std::uint64_t> places;
  std::uint64_t bytes = 0;
  for (const plan::Bucket& bucket : plan.buckets) {
    places.push_back(bytes);
    bytes += (step_bytes(bucket) + kLine - 1) / kLine * kLine;
  }
  values_ = memory::Block(bytes, memory::MemoryUse::frames);
  sums_ = std::vector<Sum>(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    sums_[i].values = values_.data() + places[i];
  }
}

bool SmallSums::reduce(const plan::Plan& plan, std::span<const TensorMemory> memory, const StepInfo& step) {
  if (sums_.empty()) {
    prepare(plan);
  }
  const std::uint64_t began = observe::ticks();
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const plan::Bucket& bucket = plan.buckets[i];
    sums_[i].operation.state = Operation::State::done;
    if (bucket.count > 0) {
      load(bucket, memory, sums_[i].values);
      transport_.post_all_reduce(sums_[i].operation, View{sums_[i].values, bucket.count, bucket.dtype});
    }
  }
  await(plan, step);
  bool nonfinite = false;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    nonfinite |= store(plan.buckets[i], memory, sums_[i].values);
  }
  if (began != 0) {
    note(plan, step.step, began);
  }
  return nonfinite;
}

void SmallSums::load(const plan::Bucket& bucket, std::span<const TensorMemory> memory, std::byte* values) const {
  const std::size_t element = element_bytes(bucket.dtype);
  for (const plan::Bucket::Part& part : bucket.parts) {
    const TensorMemory& tensor = memory[part.tensor];
    if (tensor.zero) {
      std::memset(values, 0, part.count * element);
    } else if (part.count > 0) {
      std::memcpy(values, tensor.gradient.data, part.count * element);
    }
    values += part.count * element;
  }
}

bool SmallSums::store(const plan::Bucket& bucket, std::span<const TensorMemory> memory, std::byte* values) const {
  const std::size_t element = element_bytes(bucket.dtype);
  const codec::Working working = working_of(bucket.dtype);
  if (reduction_ == Reduction::mean) {
    codec::divide(working, values, transport_.world_size(), bucket.count);
  }
  const bool finite = codec::all_finite(working, values, bucket.count);
  for (const plan::Bucket::Part& part : bucket.parts) {
    if (part.count > 0) {
      std::memcpy(memory[part.tensor].gradient.data, values, part.count * element);
    }
    values += part.count * element;
  }
  return !finite;
}

bool SmallSums::over() const noexcept {
  return std::all_of(sums_.begin(), sums_.end(), [](const Sum& sum) { return sum.operation.done(); });
}

// It does not look at the clock while peers answer at once.
void SmallSums::await(const plan::Plan& plan, const StepInfo& step) {
  for (int look = 1; look <= kEagerLooks; ++look) {
    if (over()) {
      return;
    }
    if (!transport_.progress(std::chrono::microseconds(0)) && (options_.crowded || look % kYieldsAt == 0)) {
      std::this_thread::yield();
    }
  }
  await_patiently(plan, step);
}

// Returns all other ranks: a sum waits for each of them.
std::vector<int> SmallSums::others() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < transport_.world_size(); ++rank) {
    if (rank != transport_.rank()) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

void SmallSums::await_patiently(const plan::Plan& plan, const StepInfo& step) {
  AwakeTime idle;
  for (Clock::time_point looked = Clock::now(); !over();) {
    const bool any = transport_.progress(kSleep);
    const auto now = Clock::now();
    if (peer_waits_ != nullptr) {
      peer_waits_->waited(std::chrono::duration<double>(now - looked).count(),
                          std::chrono::duration<double>(kSleep).count());
      looked = now;
    }
    if (any) {
      idle.restart(now);
    }
    if (idle.waited(now) < timeout_) {
      continue;
    }
    const auto missing = std::find_if(sums_.begin(), sums_.end(), [](const Sum& sum) { return !sum.operation.done(); });
    const plan::Bucket& bucket = plan.buckets[static_cast<std::size_t>(missing - sums_.begin())];
    throw Error(ErrorCode::timeout,
                "rank " + std::to_string(transport_.rank()) + ": native all-reduce of bucket " +
                    std::to_string(bucket.id) + " (" + plan.groups[bucket.group].name + ") of step " +
                    std::to_string(step.step) + " got nothing for " + format_duration(timeout_) + ", " +
                    transport::describe_wait(transport_, others(), timeout_),
                ErrorCause::world);
  }
}

// Records the events that the executor would: each bucket, and its sum.
void SmallSums::note(const plan::Plan& plan, std::uint64_t step, std::uint64_t began) const noexcept {
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const plan::Bucket& bucket = plan.buckets[i];
    observe::Event event{.begin = began,
                         .bytes = step_bytes(bucket),
                         .source = options_.source,
                         .step = static_cast<std::uint32_t>(step),
                         .bucket = bucket.id,
                         .kind = observe::EventKind::bucket_begin};
    observe::record(event);
    if (bucket.count > 0) {
      event.kind = observe::EventKind::all_reduce;
      event.bytes = sums_[i].operation.bytes_counted;
      observe::record_since(began, event);
    }
    event.kind = observe::EventKind::bucket_end;
    event.bytes = step_bytes(bucket);
    observe::record_since(began, event);
  }
}

void SmallSums::count(const plan::Plan& plan, std::span<Statistics> groups) const {
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const plan::Bucket& bucket = plan.buckets[i];
    Statistics& group = groups[bucket.group];
    ++group.calls;
    group.elements += bucket.count;
    group.bytes_in += step_bytes(bucket);
    if (bucket.count > 0) {
      plan.tiers->count_sent(group, sums_[i].operation.bytes_counted, transport_.rank(), exchange::Tiers::kAllPeers);
    }
    group.bytes_uncompressed += transport::ring_bytes(step_bytes(bucket), transport_.world_size());
  }
}

void SmallSums::give_up() noexcept {
  for (Sum& sum : sums_) {
    if (sum.operation.pending() && !transport_.cancel(sum.operation)) {
      values_.leak();
    }
  }
  sums_.clear();
}

}  // namespace gradwire::session

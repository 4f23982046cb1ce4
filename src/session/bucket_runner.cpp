#include "session/bucket_runner.hpp"

#define XXH_INLINE_ALL  // no need of libxxhash in programs that link gradwire
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "collective/launch.hpp"

namespace gradwire::session {
namespace {

using codec::kTileElements;

// Calls body(first, count) for each tile of `count` elements.
template <typename Body>
void for_each_tile(std::uint64_t count, Body&& body) {
  for (std::uint64_t first = 0; first < count; first += kTileElements) {
    body(first, static_cast<std::uint32_t>(std::min(kTileElements, count - first)));
  }
}

double value_at(const void* values, codec::Working working, std::uint32_t index) {
  return working == codec::Working::f64 ? static_cast<const double*>(values)[index]
                                        : static_cast<double>(static_cast<const float*>(values)[index]);
}

}  // namespace

BucketRunner::BucketRunner(std::shared_ptr<Transport> transport, const SessionOptions& options)
    : transport_(std::move(transport)),
      options_(options),
      executor_(*transport_, {.timeout = options.timeout,
                              .checksum = options.checksum.value_or(transport_->capabilities().checksum_by_default)}),
      control_(*transport_, options.timeout) {}

void BucketRunner::agree(const plan::Plan& plan, bool weighted) {
  {
    const std::lock_guard lock(statistics_mutex_);
    statistics_.resize(plan.groups.size());
  }
  const std::string mine = plan.describe() + "weighted: " + (weighted ? "yes" : "no") + "\n";
  const std::string what = "the agreement on the plan";
  const auto prints = control_.all_gather(plan::fingerprint_of(mine), what);
  if (std::all_of(prints.begin(), prints.end(), [&](const std::string& print) { return print == prints[0]; })) {
    return;
  }
  const auto texts = control_.all_gather(mine, what);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] != texts[0]) {
      throw Error(ErrorCode::mismatch, "ranks disagree about what to reduce: " +
                                           plan::first_difference(texts[0], 0, texts[rank], static_cast<int>(rank)));
    }
  }
}

void BucketRunner::start(const plan::Plan& plan, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
                         const StepInfo& step) {
  const codec::Codec codec = collective::codec_for(bucket.algorithm, bucket.codec, bucket.dtype);
  codec::TensorList tensors(bucket.dtype, codec.working());
  codec::TensorList results(bucket.dtype, codec.working());
  for (const plan::Bucket::Part& part : bucket.parts) {
    const TensorMemory& tensor = memory[part.tensor];
    results.append(tensor.gradient.data, nullptr, part.count);
    tensors.append(tensor.zero ? nullptr : tensor.gradient.data, tensor.gradient.data, part.count);
  }
  collective::Task task{.tensors = std::move(tensors),
                        .codec = codec,
                        .reduction = options_.reduction,
                        .weighted = step.weighted,
                        .weight = step.weight,
                        .bucket = bucket.id,
                        .step = step.step,
                        .residuals = nullptr,
                        .name = "bucket " + std::to_string(bucket.id) + " (" + plan.groups[bucket.group].name +
                                ") of step " + std::to_string(step.step)};
  Flight flight{bucket.id, bucket.group, nullptr, nullptr, {}, std::move(results)};
  if (options_.measure_error && codec.lossy()) {
    start_exact(flight, plan, bucket, task);
  }
  flight.execution = executor_.start(collective::all_reduce_over(*transport_, bucket.algorithm, codec, bucket.count,
                                                                 step.weighted, plan.chunk_bytes, plan.deterministic),
                                     std::move(task));
  flights_.push_back(std::move(flight));
}

void BucketRunner::start_exact(Flight& flight, const plan::Plan& plan, const plan::Bucket& bucket,
                               const collective::Task& task) {
  const std::size_t element = element_bytes(bucket.dtype);
  const codec::Codec exact = collective::codec_for(Algorithm::dense, bucket.codec, bucket.dtype);
  flight.exact_values.resize(bucket.count * element);
  codec::TensorList copy(bucket.dtype, exact.working());
  copy.append(flight.exact_values.data(), flight.exact_values.data(), bucket.count);
  std::vector<std::byte> scratch(kTileElements * element);
  for_each_tile(bucket.count, [&](std::uint64_t first, std::uint32_t count) {
    copy.store_verbatim(first, count, task.tensors.load_verbatim(first, count, scratch.data()));
  });
  collective::Task exact_task{.tensors = std::move(copy),
                              .codec = exact,
                              .reduction = task.reduction,
                              .weighted = task.weighted,
                              .weight = task.weight,
                              .bucket = task.bucket,
                              .step = task.step,
                              .residuals = nullptr,
                              .name = task.name + ", exact copy"};
  flight.exact = executor_.start(collective::all_reduce_over(*transport_, Algorithm::dense, exact, bucket.count,
                                                             task.weighted, plan.chunk_bytes, true),
                                 std::move(exact_task));
}

std::vector<std::uint32_t> BucketRunner::advance(std::chrono::microseconds wait) {
  if (!executor_.idle()) {
    executor_.advance(wait);
  }
  std::vector<std::uint32_t> ended;
  for (auto flight = flights_.begin(); flight != flights_.end();) {
    if (!flight->execution->done() || (flight->exact && !flight->exact->done())) {
      ++flight;
      continue;
    }
    collect(*flight);
    ended.push_back(flight->bucket);
    flight = flights_.erase(flight);
  }
  return ended;
}

void BucketRunner::collect(Flight& flight) {
  Statistics statistics = flight.execution->statistics();
  if (flight.exact) {
    const codec::Working working = flight.results.working();
    codec::TensorList exact(flight.results.dtype(), working);
    exact.append(flight.exact_values.data(), nullptr, flight.results.count());
    std::vector<double> scratch(2 * kTileElements);
    statistics.squared_error = 0;
    statistics.squared_norm = 0;
    for_each_tile(flight.results.count(), [&](std::uint64_t first, std::uint32_t count) {
      const void* wanted = exact.load(first, count, scratch.data());
      const void* got = flight.results.load(first, count, scratch.data() + kTileElements);
      for (std::uint32_t i = 0; i < count; ++i) {
        const double value = value_at(wanted, working, i);
        const double error = value_at(got, working, i) - value;
        statistics.squared_error += error * error;
        statistics.squared_norm += value * value;
      }
    });
  }
  const std::lock_guard lock(statistics_mutex_);
  statistics_[flight.group].add(statistics);
}

void BucketRunner::broadcast(std::span<const View> values, int root) {
  std::string mine = "broadcast from rank " + std::to_string(root) + "\n";
  for (const View& value : values) {
    mine += std::string(to_string(value.dtype)) + " x " + std::to_string(value.count) + "\n";
  }
  const auto texts = control_.all_gather(mine, "the agreement on a broadcast");
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] != texts[0]) {
      throw Error(ErrorCode::mismatch, "ranks disagree about a broadcast: " +
                                           plan::first_difference(texts[0], 0, texts[rank], static_cast<int>(rank)));
    }
  }
  for (const View& value : values) {
    const codec::Codec codec = collective::codec_for(Algorithm::dense, {}, value.dtype);
    codec::TensorList tensors(value.dtype, codec.working());
    tensors.append(value.data, value.data, value.count);
    const collective::Shape shape{.rank = transport_->rank(), .world_size = transport_->world_size()};
    const auto execution = executor_.start(collective::broadcast(shape, root, value.count, codec),
                                           {.tensors = std::move(tensors), .codec = codec, .name = "a broadcast"});
    executor_.wait(*execution);
  }
}

void BucketRunner::compare(std::span<const View> values, std::uint64_t step) {
  XXH64_hash_t hash = 0;
  for (const View& value : values) {
    hash = XXH3_64bits_withSeed(value.data, value.count * element_bytes(value.dtype), hash);
  }
  const auto hashes = control_.all_gather(std::to_string(hash), "the comparison of ranks");
  std::string different;
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] != hashes[0]) {
      different += (different.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  if (!different.empty()) {
    throw Error(ErrorCode::mismatch, "results of step " + std::to_string(step) + " differ from rank 0's on rank(s) " +
                                         different +
                                         ": something wrote to a gradient during the step, or memory is damaged");
  }
}

std::vector<Statistics> BucketRunner::statistics() const {
  const std::lock_guard lock(statistics_mutex_);
  return statistics_;
}

void BucketRunner::reset_statistics() {
  const std::lock_guard lock(statistics_mutex_);
  std::fill(statistics_.begin(), statistics_.end(), Statistics{});
}

}  // namespace gradwire::session

#include "session/host/bucket_flight.hpp"

#include <algorithm>
#include <utility>

#include "session/host/gradient_samples.hpp"

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

void BucketFlight::start_exact(exchange::HostExecutor& executor, const plan::Plan& plan, const exchange::Task& task,
                               const exchange::RankGroup& ranks) {
  const DType dtype = results_.dtype();
  const std::uint64_t elements = results_.count();
  auto [call, schedule] = exchange::resolve({.algorithm = Algorithm::dense,
                                             .dtype = dtype,
                                             .count = elements,
                                             .weighted = task.call.weighted,
                                             .chunk_bytes = plan.host_chunk_bytes()},
                                            ranks);
  exact_values_.resize(elements * element_bytes(dtype));
  codec::TensorList copy(dtype, call.codecs.first.working());
  copy.append(exact_values_.data(), exact_values_.data(), elements);
  memory::ScratchVector<std::byte> scratch(kTileElements * element_bytes(dtype));
  for_each_tile(elements, [&](std::uint64_t first, std::uint32_t count) {
    copy.store_verbatim(first, count, task.tensors.load_verbatim(first, count, scratch.data()));
  });
  exchange::Task exact_task{.tensors = std::move(copy),
                            .call = std::move(call),
                            .reduction = task.reduction,
                            .weight = task.weight,
                            .bucket = task.bucket,
                            .step = task.step,
                            .residuals = nullptr,
                            .name = task.name + ", exact copy"};
  exact_ = executor.start(std::move(schedule), std::move(exact_task));
}

Buckets::Ended BucketFlight::end(Statistics& statistics) {
  if (residuals_) {
    residuals_->end(use_);
  }
  statistics = execution_->statistics();
  if (exact_) {
    measure_errors(statistics);
  }
  if (ended_.norms) {
    ended_.norms->reduced = squared_norm(results_);
  }
  ended_.nonfinite = execution_->nonfinite();
  return ended_;
}

void BucketFlight::measure_errors(Statistics& statistics) const {
  const codec::Working working = results_.working();
  codec::TensorList exact(results_.dtype(), working);
  exact.append(exact_values_.data(), nullptr, results_.count());
  memory::ScratchVector<double> scratch(2 * kTileElements);
  statistics.squared_error = 0;
  statistics.squared_norm = 0;
  for_each_tile(results_.count(), [&](std::uint64_t first, std::uint32_t count) {
    const void* wanted = exact.load(first, count, scratch.data());
    const void* got = results_.load(first, count, scratch.data() + kTileElements);
    for (std::uint32_t i = 0; i < count; ++i) {
      const double value = value_at(wanted, working, i);
      const double error = value_at(got, working, i) - value;
      statistics.squared_error += error * error;
      statistics.squared_norm += value * value;
    }
  });
}

}  // namespace gradwire::session

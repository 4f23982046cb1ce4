#include "session/device/device_pipeline.hpp"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "exchange/stream/dry_run.hpp"

namespace gradwire::session {

void DevicePipeline::add(DeviceCalls::Prepared prepared) { take(join_.add(executor_, std::move(prepared))); }

void DevicePipeline::start_waiting() { take(join_.start(executor_)); }

void DevicePipeline::take(std::vector<DeviceFlight> flights) {
  for (DeviceFlight& flight : flights) {
    flights_.push_back(std::move(flight));
  }
  close_enqueued(true);
}

bool DevicePipeline::has(std::uint32_t bucket) const {
  return std::any_of(flights_.begin(), flights_.end(),
                     [=](const DeviceFlight& flight) { return flight.bucket == bucket; });
}

void DevicePipeline::flush(bool ends_step) {
  executor_.finish();
  close_enqueued(!ends_step);
}

// Enqueues the work that follows a bucket's collective, for all buckets whose collective is completely enqueued.
void DevicePipeline::close_enqueued(bool marks) {
  while (!flights_.empty() && flights_.front().execution->enqueued()) {
    DeviceFlight& flight = flights_.front();
    DeviceCalls::close(device_.backend(), flight);
    residuals_.end(device_.backend(), flight.bucket, flight.residuals);
    if (marks && !device_.capturing()) {
      marks_.add(flight.bucket);
    }
    statistics_.add(flight.group, flight.execution->statistics());
    flights_.pop_front();
  }
}

void DevicePipeline::reserve(DeviceCalls& calls, const plan::Plan& plan, const StepInfo& step, bool folds,
                             void* memory) {
  std::vector<DeviceCalls::Opened> opened;
  for (const plan::Bucket& bucket : plan.buckets) {
    opened.push_back(calls.reserve(plan, bucket, step, folds));
  }
  // The same step on a copy of the arena shows how much memory it takes beyond the present memory.
  std::vector<TensorMemory> tensors;
  for (const plan::TensorPlan& tensor : plan.tensors) {
    tensors.push_back({{memory, tensor.info.count, tensor.info.dtype}, false});
  }
  exchange::StreamBackend& own = device_.backend();
  exchange::reserve_memory_of(device_.arena(), own.rank(), own.world_size(), [&](exchange::NullBackend& backend) {
    exchange::StreamExecutor executor(backend);
    executor.use_windows(executor_.windows());
    std::deque<DeviceFlight> flights;
    DeviceJoin join(plan.join_bytes);
    const auto close_enqueued = [&] {
      for (; !flights.empty() && flights.front().execution->enqueued(); flights.pop_front()) {
        DeviceCalls::close(backend, flights.front());
      }
    };
    const auto take = [&](std::vector<DeviceFlight> started) {
      std::move(started.begin(), started.end(), std::back_inserter(flights));
      close_enqueued();
    };
    for (const plan::Bucket& bucket : plan.buckets) {
      take(join.add(executor, calls.prepare(backend, opened[bucket.id], plan, bucket, tensors, step)));
    }
    take(join.start(executor));
    executor.finish();
    close_enqueued();
  });
}

}  // namespace gradwire::session

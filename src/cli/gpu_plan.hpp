// What gradwire plan --gpu says: the model of exchange/stream/device_forecast.hpp by size of a bucket, or for the
// buckets of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include "cli/recorded_model.hpp"
#include "exchange/stream/device_forecast.hpp"

namespace gradwire::cli {

/// Returns the way's name in tables and pictures, such as "one lane".
[[nodiscard]] std::string_view name_of(exchange::DeviceWay way);

/// Returns the codec of all forecasts: that of the default policy.
[[nodiscard]] CodecSpec gpu_codec();

/// Returns one f32 tensor of `bytes`, at least an element, by that codec.
[[nodiscard]] exchange::DeviceBucket bucket_of(std::uint64_t bytes);

/// Returns "1 kernel" or "98 kernels".
[[nodiscard]] std::string counted_text(std::uint64_t count, std::string_view what);

/// Returns whole microseconds, without a unit.
[[nodiscard]] std::string rounded_microseconds(double seconds);

/// Prints the parameters, and what each way takes for a bucket of one f32 tensor of each size, in bytes.
void print_gpu_table(const exchange::DeviceCluster& cluster, std::span<const std::uint64_t> sizes, std::ostream& out);

/// Prints the step of the model by each way, with the buckets that a session would form.
void print_gpu_steps(const exchange::DeviceCluster& cluster, const RecordedModel& read, std::ostream& out);

/// Returns a picture of what runs when for a bucket of `bytes`: the executor as it was, as it is, and the ways that the
/// cluster has beyond.
[[nodiscard]] std::string draw_launches(const exchange::DeviceCluster& cluster, std::uint64_t bytes);

}  // namespace gradwire::cli

// The work of a DeviceRunner between steps: it follows replays, agrees with other ranks, and saves.
// The host waits for the device here.
#include <algorithm>
#include <array>

#include "exchange/stream/stream_call.hpp"
#include "plan/hash.hpp"
#include "session/device/device_runner.hpp"
#include "session/runner/agreements.hpp"

namespace gradwire::session {
namespace {

using exchange::CurrentDevice;
using exchange::StreamBackend;

}  // namespace

std::optional<std::uint32_t> DeviceRunner::replayed_to() {
  const CurrentDevice current(*device_);
  std::uint32_t step = 0;
  device_->follow_caller();
  device_->download(std::as_writable_bytes(std::span(&step, 1)), step_, options_.timeout);
  return step;
}

// This runs before the first step, as load_residuals() does: the caller's stream does not use the session's memory
// until then.
void DeviceRunner::set_step(std::uint64_t step) {
  const CurrentDevice current(*device_);
  const auto word = static_cast<std::uint32_t>(step);
  device_->upload(step_, std::as_bytes(std::span(&word, 1)));
}

// Uses an encoder of exact values, since that looks at each value.
std::vector<int> DeviceRunner::nonfinite_ranks(std::span<const TensorMemory> memory, double scale, std::uint64_t step) {
  const CurrentDevice current(*device_);
  marks_.begin_step(step);
  constexpr std::uint64_t kPiece = 1ULL << 20;  // elements
  const CodecSpec exact = CodecSpec::exact();
  StreamBackend& backend = device_->backend();
  device_->follow_caller();
  device_->zero(probe_status_, sizeof(kernels::DeviceStatus));
  std::byte* scratch = backend.acquire(kPiece * sizeof(double) + 4096);
  for (const TensorMemory& tensor : memory) {
    for (std::uint64_t first = 0; !tensor.zero && first < tensor.gradient.count; first += kPiece) {
      const DType dtype = tensor.gradient.dtype;
      backend.encode({.call = {.codec = {.id = exact.values, .k = 0, .dtype = dtype},
                               .bucket = 0,
                               .step = step_,
                               .status = probe_status_},
                      .frame = {.bytes = reinterpret_cast<std::uint8_t*>(scratch),
                                .count = static_cast<std::uint32_t>(std::min(kPiece, tensor.gradient.count - first)),
                                .peer = info().rank},
                      .values = static_cast<const std::byte*>(tensor.gradient.data) + first * element_bytes(dtype),
                      .values_dtype = dtype});
    }
  }
  backend.release(scratch);
  kernels::DeviceStatus found;
  device_->download(std::as_writable_bytes(std::span(&found, 1)), probe_status_, options_.timeout);
  return agree_on_nonfinite(peers(), found.nonfinite != 0, scale, step);
}

std::shared_ptr<std::byte> DeviceRunner::scratch(std::uint64_t bytes) {
  const CurrentDevice current(*device_);
  StreamBackend& backend = device_->backend();
  return {backend.acquire(bytes), [&backend](std::byte* memory) { backend.release(memory); }};
}

void DeviceRunner::broadcast(std::span<const View> values, int root, bool /*packed*/) {
  require_no_capture(*device_, "broadcast");
  const CurrentDevice current(*device_);
  device_->follow_caller();
  agree_on_broadcast(peers(), values, root, false);
  for (const View& value : values) {
    const exchange::StreamCall call = exchange::make_stream_call({.collective = exchange::Collective::broadcast,
                                                                  .codec = CodecSpec::exact(),
                                                                  .dtype = value.dtype,
                                                                  .count = value.count,
                                                                  .root = root},
                                                                 device_->backend(), std::nullopt);
    pipeline_.executor().run(
        call.resolved.schedule,
        exchange::make_stream_task(call, *device_,
                                   {.input = value.data, .output = value.data, .step = step_, .name = "a broadcast"}));
  }
  device_->lead_caller();
}

void DeviceRunner::compare(std::span<const View> values, std::uint64_t step) {
  const CurrentDevice current(*device_);
  std::uint64_t hash = 0;
  for (const View& value : values) {
    std::vector<std::byte> bytes(value.count * element_bytes(value.dtype));
    if (!bytes.empty()) {
      device_->download(bytes, value.data, options_.timeout);
    }
    hash = plan::hash_of(bytes.data(), bytes.size(), hash);
  }
  agree_on_results(peers(), hash, step);
}

std::vector<std::uint64_t> DeviceRunner::hashes(std::span<const View> values) {
  const CurrentDevice current(*device_);
  StreamBackend& backend = device_->backend();
  std::vector<std::array<std::uint32_t, 2>> sums(values.size());
  const std::size_t bytes = sums.size() * sizeof(sums[0]);
  std::byte* memory = backend.acquire(bytes);
  device_->zero(memory, bytes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    backend.hash(values[i].data, values[i].count, reinterpret_cast<std::uint32_t*>(memory) + 2 * i);
  }
  device_->download(std::as_writable_bytes(std::span(sums)), memory, options_.timeout);
  backend.release(memory);
  std::vector<std::uint64_t> hashes;
  hashes.reserve(sums.size());
  for (const auto& [low, high] : sums) {
    hashes.push_back(std::uint64_t{high} << 32U | low);
  }
  return hashes;
}

}  // namespace gradwire::session

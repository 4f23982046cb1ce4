#include "tests/support/host_device.hpp"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <new>
#include <utility>

#include "tests/support/simulated_codecs.hpp"

namespace gradwire::test {
namespace {

[[noreturn]] void fault(const std::string& what) { throw Error(ErrorCode::internal, "host device: " + what); }

}  // namespace

HostDevice::HostDevice(std::shared_ptr<Transport> transport, std::size_t limit, std::size_t slab_bytes)
    : transport_(std::move(transport)), source_(*this, limit), arena_(source_, slab_bytes) {}

HostDevice::~HostDevice() = default;

std::byte* HostDevice::Source::allocate(std::size_t bytes) {
  if (bytes > left_) {
    return nullptr;
  }
  left_ -= bytes;
  ++device_.allocations;
  auto* slab =
      static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{memory::Arena::kAlignment}, std::nothrow));
  std::memset(slab, 0xA5, bytes);
  return slab;
}

void HostDevice::Source::free(std::byte* slab) noexcept {
  ::operator delete[](slab, std::align_val_t{memory::Arena::kAlignment});
}

int HostDevice::enter() { return entered_++; }
void HostDevice::leave(int previous) noexcept { entered_ = previous; }

void HostDevice::push(std::function<void()> work) {
  if (entered_ == 0) {
    fault("used while another device is current");
  }
  if (capturing_ && !joined_) {
    fault("work beside the capture of the caller's stream");
  }
  (capturing_ ? graph_ : queue_).push_back(std::move(work));
}

void HostDevice::run_until(std::size_t end) {
  while (done_ < end) {
    const std::function<void()> work = std::exchange(queue_[done_], {});
    ++done_;
    work();
  }
}

void HostDevice::synchronize() { run_until(queue_.size()); }

void HostDevice::begin_capture() {
  capturing_ = true;
  joined_ = false;
  graph_.clear();
}

HostDevice::Work HostDevice::end_capture() {
  if (joined_) {
    fault("the capture ends before the compute queue has joined the caller's stream");
  }
  capturing_ = false;
  return std::exchange(graph_, {});
}

void HostDevice::replay(const Work& graph) { queue_.insert(queue_.end(), graph.begin(), graph.end()); }

void HostDevice::follow_caller() {
  ++followed;
  joined_ = capturing_;
}

void HostDevice::lead_caller() {
  ++led;
  joined_ = false;
}

HostDevice::Point HostDevice::mark() {
  if (capturing_) {
    fault("mark() during capture");
  }
  return queue_.size();
}

void HostDevice::wait(Point point, std::chrono::milliseconds /*timeout*/) {
  if (capturing_) {
    fault("wait() during capture");
  }
  run_until(point);
}

void HostDevice::download(std::span<std::byte> to, const void* from, std::chrono::milliseconds /*timeout*/) {
  if (capturing_) {
    fault("download() during capture");
  }
  synchronize();
  std::memcpy(to.data(), from, to.size());
}

void HostDevice::upload(void* to, std::span<const std::byte> from) {
  if (capturing_) {
    fault("upload() during capture");
  }
  push([to, bytes = std::vector<std::byte>(from.begin(), from.end())] {
    if (!bytes.empty()) {
      std::memcpy(to, bytes.data(), bytes.size());
    }
  });
}

void HostDevice::zero(void* data, std::size_t bytes) {
  push([=] { std::memset(data, 0, bytes); });
}

void HostDevice::advance(std::uint32_t* step) {
  push([=] { ++*step; });
}

void HostDevice::check(const void* data, const std::string& what) {
  if (foreign.contains(data)) {
    throw Error(ErrorCode::invalid_argument, what + " is host memory, not memory of this device");
  }
}

void HostDevice::poll() {
  if (asynchronous_error) {
    throw Error(*asynchronous_error);
  }
}

void HostDevice::encode(const kernels::EncodeJob& job) {
  push([job] { run_encode(job); });
}

void HostDevice::decode(const kernels::DecodeJob& job) {
  push([job] { run_decode(job); });
}

void HostDevice::reduce(const kernels::ReduceJob& job) {
  push([job, inputs = std::vector<kernels::ReduceInput>(job.inputs, job.inputs + job.ranks)] {
    run_reduce(job, inputs);
  });
}

void HostDevice::fold(float* residual, double factor, const double* device_factor, void* values, DType dtype,
                      std::uint64_t count) {
  push([=] { run_fold(residual, device_factor != nullptr ? *device_factor : factor, values, dtype, count); });
}

void HostDevice::convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count,
                         double factor, const double* device_factor, double divisor, const double* device_divisor) {
  push([=] {
    run_convert(from, from_dtype, to, to_dtype, count, device_factor != nullptr ? *device_factor : factor,
                device_divisor != nullptr ? *device_divisor : divisor);
  });
}

void HostDevice::gather(std::span<const kernels::CopyPiece> pieces, DType tensors, void* run, DType run_dtype) {
  ++gathers;
  push([=, all = std::vector<kernels::CopyPiece>(pieces.begin(), pieces.end())] {
    for (const kernels::CopyPiece& piece : all) {
      std::byte* to = static_cast<std::byte*>(run) + piece.offset * element_bytes(run_dtype);
      if (piece.tensor == nullptr) {
        std::memset(to, 0, piece.count * element_bytes(run_dtype));
      } else {
        run_convert(piece.tensor, tensors, to, run_dtype, piece.count, 1, 1);
      }
    }
  });
}

void HostDevice::scatter(std::span<const kernels::CopyPiece> pieces, DType tensors, const void* run, DType run_dtype) {
  push([=, all = std::vector<kernels::CopyPiece>(pieces.begin(), pieces.end())] {
    for (const kernels::CopyPiece& piece : all) {
      if (piece.tensor != nullptr) {
        run_convert(static_cast<const std::byte*>(run) + piece.offset * element_bytes(run_dtype), run_dtype,
                    piece.tensor, tensors, piece.count, 1, 1);
      }
    }
  });
}

void HostDevice::copy(void* to, const void* from, std::size_t bytes) {
  push([=] { std::memmove(to, from, bytes); });
}

void HostDevice::sum_weights(std::span<const double* const> weights, double own, double* totals) {
  push([=, all = std::vector<const double*>(weights.begin(), weights.end())] {
    double sum = 0;
    bool good = true;
    for (const double* weight : all) {
      good = good && *weight >= 0 && std::isfinite(*weight);
      sum += *weight;
    }
    good = good && sum > 0;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    totals[0] = good ? sum : nan;
    totals[1] = good ? 1 / sum : nan;
    totals[2] = good ? own / sum : nan;
  });
}

void HostDevice::store_weight(double weight, double* to) {
  push([=] { *to = weight; });
}

void HostDevice::send(std::span<const std::byte> bytes, int peer) {
  group_.push_back({true, const_cast<std::byte*>(bytes.data()), bytes.size(), peer});
}

void HostDevice::receive(std::span<std::byte> bytes, int peer) {
  group_.push_back({false, bytes.data(), bytes.size(), peer});
}

void HostDevice::end_group() {
  if (!group_.empty()) {
    push([this, messages = std::exchange(group_, {})] { exchange(messages); });
  }
}

// As NCCL does: messages between two ranks match in their order.
void HostDevice::exchange(const std::vector<Message>& messages) {
  std::deque<Operation> operations;
  try {
    for (const Message& message : messages) {
      Operation& operation = operations.emplace_back();
      const Tag tag = next_tag_[{message.peer, message.sends}]++ % kTagLimit;
      if (message.sends) {
        transport_->post_send(operation, message.peer, tag, {message.data, message.bytes});
      } else {
        transport_->post_receive(operation, message.peer, tag, {message.data, message.bytes});
      }
    }
    for (const Operation& operation : operations) {
      while (!operation.done()) {
        transport_->progress(std::chrono::milliseconds(1));
      }
    }
  } catch (...) {
    for (Operation& operation : operations) {
      if (operation.pending() && !transport_->cancel(operation)) {
        std::abort();  // the transport would go on with what is gone
      }
    }
    throw;
  }
  for (const Message& message : messages) {
    if (!message.sends && damage_next_frame) {
      damage_next_frame = false;
      message.data[0] ^= std::byte{0xFF};
    }
  }
}

// In rank order, so that ranks agree to the bit, as a ring does.
void HostDevice::all_reduce(void* values, DType dtype, std::uint64_t count) {
  push([=, this] {
    const std::size_t bytes = count * element_bytes(dtype);
    const auto world = static_cast<std::size_t>(world_size());
    std::vector<std::vector<std::byte>> all(world, std::vector<std::byte>(bytes));
    std::vector<Message> messages;
    std::memcpy(all[static_cast<std::size_t>(rank())].data(), values, bytes);
    for (int peer = 0; peer < world_size(); ++peer) {
      if (peer != rank()) {
        messages.push_back({true, static_cast<std::byte*>(values), bytes, peer});
        messages.push_back({false, all[static_cast<std::size_t>(peer)].data(), bytes, peer});
      }
    }
    exchange(messages);
    std::vector<double> sum(count);
    std::vector<double> part(count);
    for (const auto& one : all) {
      run_convert(one.data(), dtype, part.data(), DType::f64, count, 1, 1);
      for (std::uint64_t i = 0; i < count; ++i) {
        sum[i] += part[i];
      }
    }
    run_convert(sum.data(), DType::f64, values, dtype, count, 1, 1);
  });
}

}  // namespace gradwire::test

#include "collective/stream_staged.hpp"

#include <utility>

#include "base/current_error.hpp"
#include "base/units.hpp"
#include "memory/cuda_check.hpp"

namespace gradwire::collective {

using memory::cuda_check;

StagedMessages::StagedMessages(std::shared_ptr<Transport> transport, int device, std::chrono::milliseconds timeout)
    : transport_(std::move(transport)), timeout_(timeout), pinned_(device) {
  if (!transport_->capabilities().any_thread) {
    throw Error(ErrorCode::unsupported,
                "device tensors over " + transport_->name() +
                    " need a transport that any thread may use; with MPI, MPI_Init_thread with MPI_THREAD_MULTIPLE");
  }
}

StagedMessages::~StagedMessages() {
  const std::lock_guard lock(mutex_);
  for (std::byte* memory : leaked_) {
    pinned_.leak(memory);
  }
}

void StagedMessages::begin_group() {
  sweep();
  for (const Message& message : group_) {  // of a group that failed half-way
    pinned_.release(message.staging);
  }
  group_.clear();
}

void StagedMessages::add(bool sends, std::byte* device, std::uint64_t bytes, int peer, void* stream) {
  stream_ = static_cast<cudaStream_t>(stream);
  require_no_capture(stream_);
  group_.push_back({sends, device, pinned_.acquire(bytes), bytes, peer});
}

void StagedMessages::send(std::span<const std::byte> bytes, int peer, void* stream) {
  add(true, const_cast<std::byte*>(bytes.data()), bytes.size(), peer, stream);  // only read
}

void StagedMessages::receive(std::span<std::byte> bytes, int peer, void* stream) {
  add(false, bytes.data(), bytes.size(), peer, stream);
}

void StagedMessages::all_reduce(void* /*values*/, DType /*dtype*/, std::uint64_t /*count*/, void* /*stream*/) {
  throw Error(ErrorCode::unsupported, "native sums of device memory over " + name() + "; set deterministic = true");
}

void StagedMessages::require_no_capture(cudaStream_t stream) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda_check(cudaStreamIsCapturing(stream, &status), "asking whether the stream is being captured");
  if (status != cudaStreamCaptureStatusNone) {
    throw Error(ErrorCode::unsupported, "messages over " + name() + " cannot be captured into a graph; use NCCL");
  }
}

void StagedMessages::end_group() {
  if (group_.empty()) {
    return;
  }
  for (const Message& message : group_) {
    if (message.sends) {
      cuda_check(cudaMemcpyAsync(message.staging, message.device, message.bytes, cudaMemcpyDeviceToHost, stream_),
                 "staging " + std::to_string(message.bytes) + " bytes for rank " + std::to_string(message.peer));
    }
  }
  auto group = std::make_unique<Group>(Group{this, group_});
  cuda_check(cudaLaunchHostFunc(stream_, run, group.get()), "enqueueing an exchange (cudaLaunchHostFunc)");
  static_cast<void>(group.release());  // run() has it now
  for (const Message& message : group_) {
    if (!message.sends) {
      cuda_check(cudaMemcpyAsync(message.device, message.staging, message.bytes, cudaMemcpyHostToDevice, stream_),
                 "unstaging " + std::to_string(message.bytes) + " bytes of rank " + std::to_string(message.peer));
    }
  }
  auto event = std::make_unique<CudaEvent>();
  event->record(stream_);
  staged_.push_back({std::move(event), std::exchange(group_, {})});
}

// On a thread of CUDA's, which must not call CUDA.
void StagedMessages::run(void* group) noexcept {
  const std::unique_ptr<Group> owned(static_cast<Group*>(group));
  StagedMessages& self = *owned->messages;
  {
    const std::lock_guard lock(self.mutex_);
    if (self.failure_) {
      return;
    }
  }
  try {
    self.exchange(*owned);
  } catch (...) {
    self.fail(current_error());
  }
}

void StagedMessages::exchange(const Group& group) {
  std::deque<Operation> operations;
  try {
    for (const Message& message : group.parts) {
      const Tag tag = next_tag_[{message.peer, message.sends}]++ % kTagLimit;  // messages match in their order
      Operation& operation = operations.emplace_back();
      if (message.sends) {
        transport_->post_send(operation, message.peer, tag, {message.staging, message.bytes});
      } else {
        transport_->post_receive(operation, message.peer, tag, {message.staging, message.bytes});
      }
    }
    auto last = std::chrono::steady_clock::now();
    for (const Operation& operation : operations) {
      while (!operation.done()) {
        if (transport_->progress(std::chrono::milliseconds(1))) {
          last = std::chrono::steady_clock::now();
        } else if (std::chrono::steady_clock::now() - last > timeout_) {
          throw Error(ErrorCode::timeout, "rank " + std::to_string(rank()) + ": got nothing for " +
                                              format_duration(timeout_) + ", waiting for rank " +
                                              std::to_string(operation.peer) +
                                              ": is it alive, and does it make the same calls?");
        }
      }
    }
  } catch (...) {
    const Error error = current_error();
    transport_->abort(error.code(), error.what());
    bool leak = false;
    for (Operation& operation : operations) {
      leak = (operation.pending() && !transport_->cancel(operation)) || leak;
    }
    if (leak) {  // the transport may still write to them, and to the staging memory, which nobody gets again
      new std::deque<Operation>(std::move(operations));
      const std::lock_guard lock(mutex_);  // this thread must not touch the pool
      for (const Message& message : group.parts) {
        leaked_.push_back(message.staging);
      }
    }
    throw Error(error);
  }
}

void StagedMessages::sweep() {
  while (!staged_.empty() && cudaEventQuery(staged_.front().event->get()) == cudaSuccess) {
    const bool usable = [this] {
      const std::lock_guard lock(mutex_);
      return !failure_;
    }();
    for (const Message& message : staged_.front().parts) {
      if (usable) {
        pinned_.release(message.staging);
      }
    }
    staged_.pop_front();
  }
}

void StagedMessages::fail(const Error& error) noexcept {
  transport_->abort(error.code(), error.what());
  const std::lock_guard lock(mutex_);
  if (!failure_) {
    failure_ = error;
  }
}

void StagedMessages::poll() {
  const std::lock_guard lock(mutex_);
  if (failure_) {
    throw Error(*failure_);
  }
}

void StagedMessages::abort(ErrorCode code, const std::string& message) noexcept {
  try {
    fail(Error(code, message));
  } catch (const std::bad_alloc&) {
    transport_->abort(code, "out of memory");
  }
}

}  // namespace gradwire::collective

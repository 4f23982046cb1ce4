#include "transport/relayed_messages.hpp"

#include <new>

#include "base/awake_time.hpp"
#include "base/current_error.hpp"
#include "base/units.hpp"
#include "transport/operations.hpp"
#include "transport/silence.hpp"

namespace gradwire::transport {
namespace {

using Clock = std::chrono::steady_clock;

// For so long the thread polls for a stream to reach a group before it sleeps.
constexpr std::chrono::microseconds kSpin{100};
constexpr std::chrono::microseconds kNap{30};

// Whether `number` is not after `now`; numbers wrap around.
bool reached(StreamPort::Number now, StreamPort::Number number) noexcept {
  return static_cast<std::int32_t>(now - number) >= 0;
}

}  // namespace

RelayedMessages::RelayedMessages(std::shared_ptr<Transport> transport, std::unique_ptr<StreamPort> port, Path path,
                                 std::chrono::milliseconds timeout)
    : transport_(std::move(transport)),
      port_(std::move(port)),
      path_(path),
      timeout_(timeout),
      enqueued_(port_->told()) {
  const TransportCapabilities capabilities = transport_->capabilities();
  if (!capabilities.any_thread) {
    throw Error(ErrorCode::unsupported,
                "device tensors over " + transport_->name() +
                    " need a transport that any thread may use; with MPI, MPI_Init_thread with MPI_THREAD_MULTIPLE");
  }
  if (path_ == Path::direct && !capabilities.device_memory) {
    throw Error(ErrorCode::unsupported,
                transport_->name() + " does not support device memory; copy through host memory");
  }
  thread_ = std::thread([this] { run(); });
}

RelayedMessages::~RelayedMessages() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
  for (std::byte* staging : leaked_) {
    port_->leak(staging);
  }
}

std::string RelayedMessages::name() const {
  return transport_->name() + (path_ == Path::direct ? ", from device memory" : ", staged through pinned memory");
}

void RelayedMessages::begin_group() {
  throw_failure();
  release_staging();
  for (const Transfer& message : group_) {  // left from a group that failed half-way
    port_->release(message.staging);
  }
  group_.clear();
}

// Once the stream has reached a later group, it has done the copies of the earlier ones.
void RelayedMessages::release_staging() {
  while (!staged_.empty() && reached(port_->told(), staged_.front().number + 1)) {
    for (const Transfer& message : staged_.front().parts) {
      port_->release(message.staging);
    }
    staged_.pop_front();
  }
}

void RelayedMessages::add(bool sends, std::byte* device, std::uint64_t bytes, int peer, void* stream) {
  stream_ = stream;
  port_->require_no_capture(stream);
  group_.push_back({sends, device, path_ == Path::staged ? port_->acquire(bytes) : nullptr, bytes, peer});
}

void RelayedMessages::send(std::span<const std::byte> bytes, int peer, void* stream) {
  add(true, const_cast<std::byte*>(bytes.data()), bytes.size(), peer, stream);  // only read
}

void RelayedMessages::receive(std::span<std::byte> bytes, int peer, void* stream) {
  add(false, bytes.data(), bytes.size(), peer, stream);
}

void RelayedMessages::all_reduce(void* /*values*/, DType /*dtype*/, std::uint64_t /*count*/, void* /*stream*/) {
  throw Error(ErrorCode::unsupported, "native sums of device memory over " + name() + "; set deterministic = true");
}

void RelayedMessages::end_group() {
  if (group_.empty()) {
    return;
  }
  Number number = 0;
  for (const Transfer& message : group_) {
    if (message.sends && message.staging != nullptr) {
      port_->copy_to_host(stream_, message.staging, {message.device, message.bytes});
    }
  }
  {
    const MutexLock lock(mutex_);
    if (failure_) {
      throw Error(*failure_);
    }
    number = ++enqueued_;  // from now on a failure lets the stream go on
    waiting_.push_back({number, group_});
    changed_.notify_all();
  }
  port_->tell_host(stream_, number);  // may block until there is room in the stream, so the lock is not held
  port_->wait_for_host(stream_, number);
  for (const Transfer& message : group_) {
    if (!message.sends && message.staging != nullptr) {
      port_->copy_to_device(stream_, {message.device, message.bytes}, message.staging);
    }
  }
  if (path_ == Path::staged) {
    staged_.push_back({number, std::move(group_)});
  }
  group_.clear();
}

void RelayedMessages::run() noexcept {
  try {
    port_->enter();
    Group group;
    while (take(group)) {
      if (wait_for_stream(group.number)) {
        exchange(group);
        let_go(group.number);
      }
    }
  } catch (...) {
    fail(current_error());
  }
}

// Waits for a group; returns false at the end.
bool RelayedMessages::take(Group& group) {
  const MutexLock lock(mutex_);
  changed_.wait(mutex_, [this]() REQUIRES(mutex_) { return stopping_ || failure_ || !waiting_.empty(); });
  if (failure_ || waiting_.empty()) {
    return false;
  }
  group = std::move(waiting_.front());
  waiting_.pop_front();
  return true;
}

void RelayedMessages::let_go(Number number) {
  const MutexLock lock(mutex_);
  if (!failure_) {  // after a failure the stream was let go on already
    port_->tell_stream(number);
  }
}

// Waits without a limit, since the device may compute for long; returns false where nobody will wait for the group.
bool RelayedMessages::wait_for_stream(Number number) {
  const auto begin = Clock::now();
  while (!reached(port_->told(), number)) {
    if (Clock::now() - begin > kSpin) {
      const MutexLock lock(mutex_);
      if (changed_.wait_for(mutex_, kNap, [this]() REQUIRES(mutex_) { return stopping_ || failure_; })) {
        return false;
      }
    }
  }
  return true;
}

void RelayedMessages::exchange(const Group& group) {
  std::deque<Operation> operations;
  try {
    for (const Transfer& message : group.parts) {
      const Tag tag = next_tag_[{message.peer, message.sends}]++ % kTagLimit;  // messages match by their order
      Operation& operation = operations.emplace_back();
      if (message.sends) {
        transport_->post_send(operation, message.peer, tag, {message.memory(), message.bytes});
      } else {
        transport_->post_receive(operation, message.peer, tag, {message.memory(), message.bytes});
      }
    }
    AwakeTime idle;
    for (const Operation& operation : operations) {
      wait_for(operation, idle);
    }
  } catch (...) {
    const Error error = current_error();
    transport_->abort(error);
    bool leak = false;
    for (Operation& operation : operations) {
      leak = (operation.pending() && !transport_->cancel(operation)) || leak;
    }
    if (leak) {  // the transport may still write to them and to the staging memory, which is never used again
      new std::deque<Operation>(std::move(operations));
      const MutexLock lock(mutex_);
      for (const Transfer& message : group.parts) {
        leaked_.push_back(message.staging);
      }
    }
    throw Error(error);
  }
}

void RelayedMessages::wait_for(const Operation& operation, AwakeTime& idle) {
  while (!operation.done()) {
    if (transport_->progress(std::chrono::milliseconds(1))) {
      idle.restart(Clock::now());
    } else if (idle.waited() > timeout_) {
      throw Error(ErrorCode::timeout,
                  "rank " + std::to_string(rank()) + ": got nothing for " + format_duration(timeout_) + ", " +
                      describe_wait(*transport_, {operation.peer}, timeout_),
                  ErrorCause::world);
    }
  }
}

// Records a failure; the first one wins. The stream goes on with arbitrary bytes, and the next call throws the error.
void RelayedMessages::fail(const Error& error) noexcept {
  transport_->abort(error);
  const MutexLock lock(mutex_);
  if (!failure_) {
    failure_ = error;
  }
  port_->tell_stream(enqueued_);
  changed_.notify_all();
}

void RelayedMessages::throw_failure() {
  const MutexLock lock(mutex_);
  if (failure_) {
    throw Error(*failure_);
  }
}

void RelayedMessages::poll() { throw_failure(); }

void RelayedMessages::abort(const Error& error) noexcept { fail(error); }

}  // namespace gradwire::transport

#include "tests/support/host_device.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>
#include <thread>
#include <utility>

#include "tests/support/simulated_codecs.hpp"

namespace gradwire::test {
namespace {

[[noreturn]] void fault(const std::string& what) { throw Error(ErrorCode::internal, "host device: " + what); }

}  // namespace

HostDevice::HostDevice(std::shared_ptr<Transport> transport, std::size_t limit, std::size_t slab_bytes)
    : transport_(std::move(transport)),
      source_(*this, limit),
      arena_(source_, slab_bytes),
      random_(17U + static_cast<unsigned>(transport_->rank())) {}

HostDevice::~HostDevice() = default;

std::byte* HostDevice::Source::allocate(std::size_t bytes) {
  if (bytes > left) {
    return nullptr;
  }
  left -= bytes;
  ++device_.allocations;
  auto* slab =
      static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{memory::Arena::kAlignment}, std::nothrow));
  std::memset(slab, 0xA5, bytes);
  taken_[slab] = bytes;
  return slab;
}

void HostDevice::Source::free(std::byte* slab) noexcept {
  const auto taken = taken_.find(slab);
  left += taken->second;
  taken_.erase(taken);
  ::operator delete[](slab, std::align_val_t{memory::Arena::kAlignment});
}

int HostDevice::enter() { return entered_++; }
void HostDevice::leave(int previous) noexcept { entered_ = previous; }

void HostDevice::enqueue(std::size_t queue, Item item) {
  if (capturing_) {
    if (!joined_[queue]) {
      fault("work beside the capture of the caller's stream");
    }
    if (item.work) {  // events allow this order
      graph_.push_back(std::move(item.work));
    }
    return;
  }
  waiting_ += item.work ? 1 : 0;
  enqueued_ += queue == kCompute ? 1 : 0;
  // A rank is a thread, which runs one exchange at a time. So all ranks run those of both queues in the order in which
  // they were enqueued; the log still knows the queues apart.
  queues_[queue == kNode ? std::size_t{kCommunication} : queue].push_back(std::move(item));
}

void HostDevice::push(std::size_t queue, const std::string& what, const std::vector<Access>& accesses,
                      std::function<void()> work) {
  if (entered_ == 0 && queue != kCaller) {
    fault("used while another device is current");
  }
  log().add(queue, what, accesses);
  enqueue(queue, {.work = std::move(work)});
}

HostDevice::Event HostDevice::record_on(std::size_t queue) {
  auto reached = std::make_shared<bool>(false);
  events_.push_back({reached, log().now(queue), capturing_});
  enqueue(queue, {.reaches = std::move(reached)});
  return static_cast<Event>(events_.size() - 1);
}

void HostDevice::wait_on(std::size_t queue, Event event) {
  const Recorded& recorded = events_.at(event);
  if (recorded.captured != capturing_) {
    fault("an event of a capture is waited for outside of it, or the other way round");
  }
  log().wait(queue, recorded.clock);
  if (capturing_) {
    joined_[queue] = true;
  } else {
    enqueue(queue, {.waits_for = recorded.reached});
  }
}

void HostDevice::run_one() {
  const std::size_t first = random_() % kQueues;
  for (std::size_t i = 0; i < kQueues; ++i) {
    const std::size_t queue = (first + i) % kQueues;
    if (queues_[queue].empty() || (queues_[queue].front().waits_for && !*queues_[queue].front().waits_for)) {
      continue;
    }
    const Item item = std::move(queues_[queue].front());
    queues_[queue].pop_front();
    done_ += queue == kCompute ? 1 : 0;
    if (item.reaches) {
      *item.reaches = true;
    }
    if (item.work) {
      --waiting_;
      item.work();
    }
    return;
  }
  fault("its queues wait for each other for ever");
}

void HostDevice::run_until(Point end) {
  if (done_ < end && !messages_over_) {
    throw_if_aborted();
  }
  while (done_ < end) {
    run_one();
  }
}

void HostDevice::run_some(std::size_t operations) {
  const auto holds = [](const auto& queue) { return !queue.empty(); };
  while (operations-- > 0 && std::any_of(queues_.begin(), queues_.end(), holds)) {
    run_one();
  }
}

void HostDevice::synchronize() {
  run_some(~std::size_t{0});
  for (const std::size_t queue : {kCaller, kCompute, kCommunication, kNode}) {
    log_.wait_on_host(log_.now(queue));
  }
}

void HostDevice::call(const char* what, const std::vector<Access>& accesses, std::function<void()> work) {
  push(kCaller, what, accesses, std::move(work));
}

void HostDevice::begin_capture() {
  capturing_ = true;
  joined_ = {};
  joined_[kCaller] = true;
  graph_.clear();
  graph_log_ = new_log();
}

HostDevice::Work HostDevice::end_capture() {
  if (!graph_log_.knows_all(kCaller)) {
    fault("the capture ends before its queues have joined the caller's stream");
  }
  capturing_ = false;
  return {std::exchange(graph_, {}), graph_log_.all()};
}

void HostDevice::replay(const Work& graph) {
  push(kCaller, "a replay", graph.accesses, [operations = graph.operations] {
    for (const auto& operation : operations) {
      operation();
    }
  });
}

void HostDevice::follow_caller() {
  if (followed++ + led == drop_join) {
    return;
  }
  wait_on(kCompute, record_on(kCaller));
}

void HostDevice::lead_caller() {
  if (led++ + followed == drop_join) {
    return;
  }
  wait_on(kCaller, record_on(kCompute));
}

void HostDevice::require_no_capture(const char* call) const {
  if (capturing_) {
    fault(std::string(call) + "() during capture");
  }
}

HostDevice::Point HostDevice::mark() {
  require_no_capture("mark");
  marks_[enqueued_] = log_.now(kCompute);
  return enqueued_;
}

bool HostDevice::reached(Point point) {
  if (point > done_) {
    return false;
  }
  if (const auto mark = marks_.find(point); mark != marks_.end()) {
    log_.wait_on_host(mark->second);
  }
  return true;
}

void HostDevice::wait(Point point, std::chrono::milliseconds /*timeout*/) {
  require_no_capture("wait");
  run_until(point);
  static_cast<void>(reached(point));
}

void HostDevice::wait_alone(Point point, std::chrono::milliseconds /*timeout*/) {
  require_no_capture("wait_alone");
  while (done_ < point) {
    run_one();
  }
  static_cast<void>(reached(point));
}

void HostDevice::download(std::span<std::byte> to, const void* from, std::chrono::milliseconds timeout) {
  require_no_capture("download");
  const auto staging =
      std::make_shared<std::vector<std::byte>>(to.size());  // lives as long as the copy, even if this throws
  compute("download", {{from, to.size(), false}}, [=] { std::memcpy(staging->data(), from, staging->size()); });
  wait(mark(), timeout);
  std::memcpy(to.data(), staging->data(), to.size());
}

void HostDevice::upload(void* to, std::span<const std::byte> from) {
  require_no_capture("upload");
  compute("upload", {{to, from.size(), true}}, [to, bytes = std::vector<std::byte>(from.begin(), from.end())] {
    if (!bytes.empty()) {
      std::memcpy(to, bytes.data(), bytes.size());
    }
  });
}

void HostDevice::zero(void* data, std::size_t bytes) {
  compute("zero", {{data, bytes, true}}, [=] { std::memset(data, 0, bytes); });
}

void HostDevice::advance(std::uint32_t* step) {
  compute("advance", {{step, sizeof *step, true}}, [=, this] {
    ++*step;
    nonfinite_steps_ += std::exchange(status_.nonfinite, 0) != 0 ? 1 : 0;
  });
}

void HostDevice::check(const void* data, const std::string& what) {
  if (foreign.contains(data)) {
    throw Error(ErrorCode::invalid_argument, what + " is host memory, not memory of this device");
  }
}

void HostDevice::abort(const Error& error) noexcept {
  if (window_calls_ != nullptr) {
    window_calls_->abort();
  }
  transport_->abort(error);
  const std::lock_guard lock(aborting_);
  aborted_ = aborted_.value_or(error);
}

void HostDevice::throw_if_aborted() {
  const std::lock_guard lock(aborting_);
  if (aborted_) {
    throw Error(*aborted_);
  }
}

void HostDevice::end_messages(std::chrono::milliseconds timeout) {
  messages_over_ = true;
  wait(Queue::compute, record(Queue::communication));
  wait(Queue::compute, record(Queue::node));
  wait(mark(), timeout);
}

void HostDevice::poll() {
  if (!messages_over_) {
    throw_if_aborted();
  }
  if (asynchronous_error) {
    throw Error(*asynchronous_error);
  }
}

void HostDevice::compute(const char* what, const std::vector<Access>& accesses, std::function<void()> work) {
  ++computed;
  push(kCompute, what, accesses, std::move(work));
}

void HostDevice::gather(std::span<const kernels::CopyPiece> pieces, DType tensors, void* run, DType run_dtype) {
  ++gathers;
  HostKernels::gather(pieces, tensors, run, run_dtype);
}

void HostDevice::begin_group() {
  throw_if_aborted();
  group_.clear();
  group_accesses_.clear();
}

void HostDevice::send(std::span<const std::byte> bytes, int peer) {
  group_accesses_.push_back({bytes.data(), bytes.size(), false});
  group_.push_back({true, const_cast<std::byte*>(bytes.data()), bytes.size(), peer});
}

void HostDevice::receive(std::span<std::byte> bytes, int peer) {
  group_accesses_.push_back({bytes.data(), bytes.size(), true});
  group_.push_back({false, bytes.data(), bytes.size(), peer});
}

void HostDevice::end_group() {
  if (!group_.empty()) {
    ++grouped;
    push(kCommunication, "a group", group_accesses_, [this, messages = std::exchange(group_, {})] {
      std::this_thread::sleep_for(group_takes);
      exchange(messages);
    });
  }
}

// A queue that does not wait reads whatever its memory holds.
void HostDevice::exchange(const std::vector<Message>& messages) {
  if (!messages_over_) {
    try {
      exchange_now(messages);
      return;
    } catch (const Error& error) {
      if (!lets_pass) {
        throw;
      }
      abort(error);
    }
  }
  for (const Message& message : messages) {
    if (!message.sends) {
      std::memset(message.data, 0x5A, message.bytes);
    }
  }
}

// Matches messages between two ranks in their order, as NCCL does.
void HostDevice::exchange_now(const std::vector<Message>& messages) {
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
        std::abort();  // otherwise the transport would use freed memory
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

// The sum goes in rank order, so that ranks agree to the bit, as with a ring.
void HostDevice::all_reduce(void* values, DType dtype, std::uint64_t count) {
  push(kCommunication, "a native sum", {{values, count * element_bytes(dtype), true}}, [=, this] {
    std::this_thread::sleep_for(sum_takes);
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

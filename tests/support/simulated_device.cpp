#include "tests/support/simulated_device.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::test {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::byte kFresh{0xF1};  // no header has such a magic
constexpr std::byte kReleased{0xF2};

[[noreturn]] void fault(int rank, const std::string& what) {
  throw Error(ErrorCode::internal, "rank " + std::to_string(rank) + ": " + what);
}

}  // namespace

SimulatedDevice::SimulatedDevice(SimulatedWorld& world, int rank, int world_size)
    : world_(world), rank_(rank), world_size_(world_size) {}

// Checks that the operation uses only acquired memory of the executor, and that events order it after every conflicting
// use by the other queue.
void SimulatedDevice::enqueue(Queue q, Operation operation, const std::vector<Access>& accesses) {
  if (checks_races) {
    for (const Access& access : accesses) {
      const Block* block = access.memory == nullptr ? nullptr : block_of(access.memory);
      if (block != nullptr && !block->live) {
        fault(rank_, operation.what + " uses memory that is not acquired");
      }
    }
    try {
      log_.add(index(q), operation.what, accesses);
    } catch (const Error& error) {
      fault(rank_, error.what());
    }
  }
  queue(q).push_back(std::move(operation));
}

SimulatedDevice::Block* SimulatedDevice::block_of(const void* memory) {
  const auto* address = static_cast<const std::byte*>(memory);
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) {
    return nullptr;
  }
  Block& block = *std::prev(after)->second;
  return address < block.begin + block.size ? &block : nullptr;
}

void SimulatedDevice::poison(const Block& block, std::byte value, const char* what) {
  enqueue(Queue::compute,
          {.what = what,
           .work = [memory = block.begin, size = block.size,
                    value] { std::memset(memory, static_cast<int>(value), size); }},
          {{block.begin, block.size, true}});
}

std::byte* SimulatedDevice::acquire(std::size_t bytes) {
  if (acquired_ == faults.fail_acquire) {
    throw Error(ErrorCode::out_of_memory, "no memory for " + std::to_string(bytes) + " bytes");
  }
  const std::size_t size = std::max<std::size_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment;
  Block* block = nullptr;
  if (auto& unused = free_[size]; !unused.empty()) {
    block = unused.back();
    unused.pop_back();
  } else {
    auto made = std::make_unique<Block>();
    made->bytes.resize(size + kAlignment);
    const auto address = reinterpret_cast<std::uintptr_t>(made->bytes.data());
    made->begin = made->bytes.data() + (kAlignment - address % kAlignment) % kAlignment;
    made->size = size;
    block = made.get();
    blocks_.emplace(made->begin, std::move(made));
  }
  block->live = true;
  live_bytes_ += size;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  poison(*block, kFresh, "acquire");
  if (acquired_++ == faults.early_release) {
    release(block->begin);
  }
  return block->begin;
}

void SimulatedDevice::release(std::byte* memory) noexcept {
  Block* block = block_of(memory);
  if (block == nullptr || !block->live) {
    return;  // a fault has released it already
  }
  try {
    poison(*block, kReleased, "release");
  } catch (const Error& error) {
    world_.late_fault_ = error.what();
  }
  block->live = false;
  live_bytes_ -= block->size;
  free_[block->size].push_back(block);
}

SimulatedDevice::Event SimulatedDevice::record(Queue q) {
  const auto event = static_cast<Event>(events_.size());
  enqueue(q, {.kind = Kind::record, .what = "record " + std::to_string(event), .event = event});
  events_.push_back({q, log_.now(index(q)), ++recorded_[index(q)]});
  reached_.push_back(false);
  return event;
}

void SimulatedDevice::wait(Queue q, Event event) {
  if (waits_++ == faults.drop_wait) {
    return;
  }
  const Recorded& recorded = events_.at(event);
  if (recorded_[index(recorded.queue)] - recorded.ordinal > kLiveEvents) {
    fault(rank_, "waits for event " + std::to_string(event) + ", which is too old");
  }
  log_.wait(index(q), recorded.clock);
  enqueue(q, {.kind = Kind::wait, .what = "wait " + std::to_string(event), .event = event});
}

void SimulatedDevice::compute(const char* what, const std::vector<Access>& accesses, std::function<void()> work) {
  enqueue(Queue::compute, {.what = what, .work = std::move(work)}, accesses);
}

void SimulatedDevice::begin_group() {
  if (in_group_) {
    fault(rank_, "begins a group inside a group");
  }
  in_group_ = true;
}

void SimulatedDevice::send(std::span<const std::byte> bytes, int peer) {
  auto* memory = const_cast<std::byte*>(bytes.data());  // NOLINT: it is only read
  group_accesses_.push_back({memory, bytes.size(), false});
  group_.push_back({SimulatedMessage::Kind::send, memory, bytes.size(), peer});
}

void SimulatedDevice::receive(std::span<std::byte> bytes, int peer) {
  group_accesses_.push_back({bytes.data(), bytes.size(), true});
  group_.push_back({SimulatedMessage::Kind::receive, bytes.data(), bytes.size(), peer});
}

void SimulatedDevice::all_reduce(void* values, DType dtype, std::uint64_t count) {
  const std::uint64_t bytes = count * element_bytes(dtype);
  group_accesses_.push_back({values, bytes, true});
  group_.push_back({SimulatedMessage::Kind::all_reduce, static_cast<std::byte*>(values), bytes, -1, dtype});
}

void SimulatedDevice::sum_in_node(const void* from, void* to, DType dtype, std::uint64_t each, std::uint64_t rest) {
  const exchange::Tiers& nodes = world_.nodes_;
  const std::uint64_t places = nodes.members(nodes.node_of(rank_)).size();
  const bool last = nodes.place_of(rank_) + 1 == static_cast<int>(places);
  const std::uint64_t element = element_bytes(dtype);
  group_accesses_.push_back({from, (places * each + rest) * element, false});
  group_accesses_.push_back({to, (each + (last ? rest : 0)) * element, true});
  group_.push_back({.kind = SimulatedMessage::Kind::node_sum,
                    .memory = static_cast<std::byte*>(to),
                    .bytes = each * element,
                    .dtype = dtype,
                    .from = static_cast<const std::byte*>(from),
                    .rest = rest * element});
}

void SimulatedDevice::gather_in_node(void* all, std::uint64_t bytes) {
  const exchange::Tiers& nodes = world_.nodes_;
  group_accesses_.push_back({all, nodes.members(nodes.node_of(rank_)).size() * bytes, true});
  group_.push_back(
      {.kind = SimulatedMessage::Kind::node_gather, .memory = static_cast<std::byte*>(all), .bytes = bytes});
}

void SimulatedDevice::end_group() {
  if (!in_group_) {
    fault(rank_, "ends a group that it did not begin");
  }
  in_group_ = false;
  const auto librarys = [](const SimulatedMessage& message) {
    return message.kind == SimulatedMessage::Kind::all_reduce || message.in_node();
  };
  if (group_.size() != 1 && std::any_of(group_.begin(), group_.end(), librarys)) {
    fault(rank_, "a collective of the library shares its group");
  }
  const Queue queue = !group_.empty() && group_[0].in_node() ? Queue::node : Queue::communication;
  Operation group{.kind = Kind::group, .what = "group" + describe(group_), .messages = std::move(group_)};
  group_.clear();
  const std::vector<Access> accesses = std::exchange(group_accesses_, {});
  if (groups_++ == faults.swap_group) {
    held_back_ = std::move(group);
    return;
  }
  enqueue(queue, std::move(group), accesses);
  if (held_back_ && queue == Queue::communication) {
    enqueue(Queue::communication, *std::exchange(held_back_, std::nullopt));
  }
}

}  // namespace gradwire::test

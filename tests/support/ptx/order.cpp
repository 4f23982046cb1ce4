#include "tests/support/ptx/order.hpp"

#include <algorithm>

namespace gradwire::ptx {

Stamp make_stamp(const StampFields& fields) {
  if (fields.agent >= 1U << 22 || fields.block_epoch >= 1U << 14 || fields.warp_epoch >= 1U << 16) {
    throw Finding("too many blocks, barriers or warp barriers for stamps of accesses: make the job smaller");
  }
  return std::uint64_t{fields.agent} << 42 | std::uint64_t{fields.thread} << 32 |
         std::uint64_t{fields.block_epoch} << 18 | std::uint64_t{fields.warp_epoch} << 2 |
         static_cast<std::uint64_t>(fields.scope);
}

void join(Clock& clock, const Clock& other) {
  clock.resize(std::max(clock.size(), other.size()));
  for (std::size_t i = 0; i < other.size(); ++i) {
    clock[i] = std::max(clock[i], other[i]);
  }
}

void Knowledge::add(std::uint32_t agent, std::uint32_t block_epoch, std::uint32_t thread, std::uint32_t warp_epoch) {
  Known& known = agents_[agent];
  if (block_epoch > known.block_epoch) {
    known = {block_epoch, {}};
  }
  if (block_epoch == known.block_epoch) {
    std::uint32_t& last = known.threads[thread];
    last = std::max(last, warp_epoch);
  }
}

void Knowledge::add(const Knowledge& other) {
  for (const auto& [agent, known] : other.agents_) {
    for (const auto& [thread, epoch] : known.threads) {
      add(agent, known.block_epoch, thread, epoch);
    }
  }
}

bool Knowledge::covers(const StampFields& fields) const {
  const auto found = agents_.find(fields.agent);
  if (found == agents_.end()) {
    return false;
  }
  if (fields.block_epoch != found->second.block_epoch) {
    return fields.block_epoch < found->second.block_epoch;
  }
  const auto thread = found->second.threads.find(fields.thread);
  return thread != found->second.threads.end() && fields.warp_epoch <= thread->second;
}

std::uint32_t Order::add_activity(std::uint32_t stream, Clock& clock, std::string name) {
  counts_.resize(std::max<std::size_t>(counts_.size(), stream + 1));
  const std::uint64_t number = ++counts_[stream];
  activities_.push_back({stream, number, clock, std::move(name)});
  clock.resize(std::max<std::size_t>(clock.size(), stream + 1));
  clock[stream] = number;
  return static_cast<std::uint32_t>(activities_.size() - 1);
}

std::uint32_t Order::add_agent(std::uint32_t activity, std::uint32_t block) {
  agents_.push_back({activity, block});
  return static_cast<std::uint32_t>(agents_.size() - 1);
}

bool Order::ended_before(std::uint32_t agent, std::uint32_t activity) const {
  const Activity& earlier = activities_[agents_[agent].activity];
  const Clock& before = activities_[activity].before;
  return earlier.number <= (earlier.stream < before.size() ? before[earlier.stream] : 0);
}

std::string Order::name_of(Stamp stamp) const {
  const StampFields fields = fields_of(stamp);
  const Agent& agent = agents_[fields.agent];
  return activities_[agent.activity].name + ", block " + std::to_string(agent.block) + ", thread " +
         std::to_string(fields.thread);
}

bool Viewer::ordered(Stamp earlier) const {
  if (earlier == 0) {
    return true;
  }
  const StampFields e = fields_of(earlier);
  if (e.agent == fields.agent) {
    if (e.thread == fields.thread || e.block_epoch < fields.block_epoch ||
        (e.thread / 32 == fields.thread / 32 && e.warp_epoch < fields.warp_epoch)) {
      return true;
    }
  } else if (order->activity_of(e.agent) != activity && order->ended_before(e.agent, activity)) {
    return true;
  }
  return (block != nullptr && block->covers(e)) || (thread != nullptr && thread->covers(e));
}

bool Viewer::both_strong(Stamp earlier) const {
  const StampFields e = fields_of(earlier);
  const Scope needed = e.agent == fields.agent                   ? Scope::block
                       : order->activity_of(e.agent) == activity ? Scope::device
                                                                 : Scope::system;
  return std::min(e.scope, fields.scope) >= needed;
}

}  // namespace gradwire::ptx

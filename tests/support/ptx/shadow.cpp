#include "tests/support/ptx/shadow.hpp"

namespace gradwire::ptx {

namespace {

bool conflicts(Stamp earlier, const Viewer& viewer) {
  return earlier != 0 && !viewer.both_strong(earlier) && !viewer.ordered(earlier);
}

bool same_thread(Stamp a, Stamp b) { return a >> 32 == b >> 32; }
bool same_warp(Stamp a, Stamp b) { return a >> 37 == b >> 37; }

}  // namespace

Stamp note_load(Cell& cell, Stamp stamp, const Viewer& viewer) {
  if (cell.reader == stamp) {
    return 0;
  }
  if (conflicts(cell.writer, viewer)) {
    return cell.writer;
  }
  if (cell.reader == 0 || same_thread(cell.reader, stamp) || viewer.ordered(cell.reader)) {
    cell.reader = stamp;
  } else if (cell.other_reader == 0 || same_thread(cell.other_reader, stamp) || viewer.ordered(cell.other_reader) ||
             (same_warp(cell.reader, cell.other_reader) && !same_warp(cell.reader, stamp))) {
    cell.other_reader = stamp;
  }
  return 0;
}

Stamp note_store(Cell& cell, Stamp stamp, const Viewer& viewer) {
  for (const Stamp earlier : {cell.writer, cell.reader, cell.other_reader}) {
    if (conflicts(earlier, viewer)) {
      return earlier;
    }
  }
  cell = {stamp, 0, 0};
  return 0;
}

void Memory::add(const void* base, std::size_t bytes, std::string name, bool defined) {
  Allocation allocation;
  allocation.base = reinterpret_cast<std::uint64_t>(base);
  allocation.bytes = bytes;
  allocation.name = std::move(name);
  allocation.state.assign(bytes, defined ? kDefined : 0);
  allocation.cells.resize(bytes);
  allocations_[allocation.base] = std::move(allocation);
  last_ = nullptr;
}

bool Memory::remove(const void* base) {
  last_ = nullptr;
  return allocations_.erase(reinterpret_cast<std::uint64_t>(base)) != 0;
}

Allocation* Memory::find(std::uint64_t address) {
  if (last_ != nullptr && address - last_->base < last_->bytes) {
    return last_;
  }
  auto above = allocations_.upper_bound(address);
  if (above == allocations_.begin()) {
    return nullptr;
  }
  Allocation& found = std::prev(above)->second;
  if (address - found.base >= found.bytes) {
    return nullptr;
  }
  return last_ = &found;
}

void Memory::forbid(const void* from, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uint64_t>(from);
  if (Allocation* const found = find(address); found != nullptr) {
    for (std::size_t i = 0; i < bytes; ++i) {
      found->state.at(address - found->base + i) |= kForbidden;
    }
  }
}

void Memory::lose(const void* at, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uint64_t>(at);
  if (Allocation* const found = find(address); found != nullptr) {
    for (std::size_t i = 0; i < bytes; ++i) {
      found->state.at(address - found->base + i) |= kLost;
    }
  }
}

void Memory::undefine(const void* from, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uint64_t>(from);
  if (Allocation* const found = find(address); found != nullptr) {
    for (std::size_t i = 0; i < bytes; ++i) {
      found->state.at(address - found->base + i) &= static_cast<std::uint8_t>(~kDefined);
    }
  }
}

void Memory::note_copy(const void* from, bool writes, std::size_t bytes, std::uint32_t agent, const Order& order,
                       const std::string& name) {
  const auto address = reinterpret_cast<std::uint64_t>(from);
  Allocation* const found = find(address);
  if (found == nullptr) {
    return;  // memory of the host
  }
  const std::size_t begin = address - found->base;
  if (begin + bytes > found->bytes) {
    throw Finding("stray access: " + name + " of " + std::to_string(bytes) + " bytes goes past the end of " +
                  found->name);
  }
  Viewer viewer;
  viewer.fields = {agent, 0, 1, 0, Scope::none};
  viewer.activity = order.activity_of(agent);
  viewer.order = &order;
  const Stamp stamp = make_stamp(viewer.fields);
  for (std::size_t i = begin; i < begin + bytes; ++i) {
    const Stamp other = writes ? note_store(found->cells[i], stamp, viewer) : note_load(found->cells[i], stamp, viewer);
    if (other != 0) {
      throw Finding("race: " + name + " " + (writes ? "writes" : "reads") + " byte " + std::to_string(i) + " of " +
                    found->name + ", and nothing orders it behind " + order.name_of(other));
    }
    if (writes) {
      found->state[i] |= kDefined;
    }
  }
}

void Memory::publish(std::uint64_t address, const std::optional<Publication>& made, bool updates) {
  const auto found = publications_.find(address);
  if (!updates && found != publications_.end()) {
    publications_.erase(found);
  }
  if (made) {
    Publication& publication = publications_[address];
    publication.knowledge.add(made->knowledge);
    publication.scope = made->scope;
    publication.activity = made->activity;
  }
}

const Publication* Memory::published(std::uint64_t address) const {
  const auto found = publications_.find(address);
  return found == publications_.end() ? nullptr : &found->second;
}

void Memory::copy_state(void* to, const void* from, std::size_t bytes) {
  const auto target = reinterpret_cast<std::uint64_t>(to);
  const auto source = reinterpret_cast<std::uint64_t>(from);
  Allocation* const target_memory = find(target);
  Allocation* const source_memory = find(source);
  if (target_memory == nullptr || source_memory == nullptr) {
    return;
  }
  for (std::size_t i = 0; i < bytes; ++i) {
    std::uint8_t& state = target_memory->state[target - target_memory->base + i];
    const bool defined = (source_memory->state[source - source_memory->base + i] & kDefined) != 0;
    state = static_cast<std::uint8_t>((state & ~kDefined) | (defined ? kDefined : 0));
  }
}

}  // namespace gradwire::ptx

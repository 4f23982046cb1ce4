#include "tests/support/ptx/store_buffer.hpp"

#include <algorithm>
#include <cstring>

#include "tests/support/ptx/shadow.hpp"

namespace gradwire::ptx {
namespace {

bool is_own(const PendingStore& store, const Viewer& viewer) {
  const StampFields fields = fields_of(store.stamp);
  return fields.agent == viewer.fields.agent && fields.thread == viewer.fields.thread;
}

bool must_see(const PendingStore& store, const Viewer& viewer) {
  return viewer.ordered(store.stamp) || (store.fenced == Scope::device && store.activity == viewer.activity) ||
         (store.fenced == Scope::block && fields_of(store.stamp).agent == viewer.fields.agent);
}

}  // namespace

bool StoreBuffer::holds_of(std::uint32_t activity) const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [&](const PendingStore& store) { return store.activity == activity; });
}

void StoreBuffer::settle(std::uint64_t address, std::size_t size, const Viewer& viewer, bool own, Memory& memory) {
  for (std::size_t at = pending_.size(); at-- > 0;) {
    if (at < pending_.size() && pending_[at].overlaps(address, size) &&
        (is_own(pending_[at], viewer) ? own : must_see(pending_[at], viewer))) {
      arrive(at, memory);
    }
  }
}

void StoreBuffer::forward(std::uint64_t address, std::size_t size, const Viewer& viewer, std::uint8_t* bytes) const {
  for (const PendingStore& store : pending_) {
    if (store.overlaps(address, size) && is_own(store, viewer)) {
      const std::uint64_t begin = std::max(address, store.address);
      const std::uint64_t end = std::min(address + size, store.address + store.size);
      std::memcpy(bytes + (begin - address), store.bytes + (begin - store.address), end - begin);
    }
  }
}

void StoreBuffer::fence(const Viewer& viewer, Scope scope, Memory& memory) {
  for (std::size_t at = pending_.size(); at-- > 0;) {
    if (at >= pending_.size() || !(is_own(pending_[at], viewer) || must_see(pending_[at], viewer))) {
      continue;
    }
    if (scope == Scope::system) {
      arrive(at, memory);
    } else {
      pending_[at].fenced = std::max(pending_[at].fenced, scope);
    }
  }
}

void StoreBuffer::drain(std::mt19937_64& random, Memory& memory) {
  if (pending_.empty()) {
    return;
  }
  ++drains_;
  const std::size_t most = random() % 4 == 0 ? 1 + random() % pending_.size() : 0;
  for (std::size_t count = 0; count < most && !pending_.empty(); ++count) {
    arrive(random() % pending_.size(), memory);
  }
}

std::size_t StoreBuffer::arrive(std::size_t at, Memory& memory) {
  const PendingStore store = pending_[at];
  std::size_t gone = 1;
  for (std::size_t earlier = 0; earlier < at;) {
    if (pending_[earlier].overlaps(store.address, store.size)) {
      const std::size_t before = arrive(earlier, memory);
      gone += before;
      at -= before;
      earlier -= before - 1;  // all that went were at this place or in front of it
    } else {
      ++earlier;
    }
  }
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(at));
  std::memcpy(reinterpret_cast<void*>(store.address), store.bytes, store.size);
  memory.publish(store.address, store.publication, false);
  return gone;
}

}  // namespace gradwire::ptx

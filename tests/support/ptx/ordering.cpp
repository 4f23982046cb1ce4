// What orders accesses of different threads beside the barriers of a block: barriers of warps, releases, acquires and
// fences.
#include <algorithm>

#include "tests/support/ptx/forms.hpp"
#include "tests/support/ptx/lanes.hpp"

namespace gradwire::ptx {
namespace {

ThreadSync& sync_of(Warp& warp, std::uint32_t lane) { return warp.block->threads[warp.number * 32 + lane]; }

// Returns what the thread knows, its own accesses included. Its epoch then grows, so that later accesses are not
// covered.
Knowledge release(Warp& warp, std::uint32_t lane) {
  Block& block = *warp.block;
  const std::uint32_t thread = warp.number * 32 + lane;
  Knowledge all = block.knowledge;
  if (const auto sync = block.threads.find(thread); sync != block.threads.end()) {
    all.add(sync->second.acquired);
  }
  all.add(block.agent, block.epoch, thread, warp.epoch[lane]);
  ++warp.epoch[lane];
  return all;
}

// Two grids may be on two GPUs: between them only the system's scope will do.
bool reaches(const Publication& publication, Scope scope, std::uint32_t activity) {
  if (publication.activity == activity) {
    return publication.scope != Scope::block && scope != Scope::block;
  }
  return publication.scope == Scope::system && scope == Scope::system;
}

}  // namespace

Viewer viewer_of(const Warp& warp, std::uint32_t lane, Scope scope) {
  const Block& block = *warp.block;
  const std::uint32_t thread = warp.number * 32 + lane;
  Viewer viewer;
  viewer.fields = {block.agent, thread, block.epoch, warp.epoch[lane], scope};
  viewer.activity = block.grid->activity;
  viewer.order = &Machine::current->order();
  viewer.block = block.knowledge.empty() ? nullptr : &block.knowledge;
  if (const auto sync = block.threads.find(thread); sync != block.threads.end()) {
    viewer.thread = &sync->second.acquired;
  }
  return viewer;
}

void acquire(Warp& warp, std::uint32_t lane, const MemoryForm& form, std::uint64_t address) {
  const Publication* const found = Machine::current->memory().published(address);
  if (found == nullptr || form.scope == Scope::none) {
    return;
  }
  ThreadSync& sync = sync_of(warp, lane);
  const std::uint32_t activity = warp.block->grid->activity;
  if (reaches(*found, Scope::system, activity)) {
    sync.observed.add(found->knowledge);
    if (found->activity != activity) {
      sync.observed_scope = Scope::system;  // only a fence of the system reaches another grid
    }
  }
  if (form.acquires && reaches(*found, form.scope, activity)) {
    sync.acquired.add(found->knowledge);
  }
}

std::optional<Publication> publication_of(Warp& warp, std::uint32_t lane, const MemoryForm& form) {
  if (form.scope == Scope::none) {
    return std::nullopt;
  }
  const std::uint32_t activity = warp.block->grid->activity;
  if (form.releases) {
    return Publication{release(warp, lane), form.scope, activity};
  }
  const auto sync = warp.block->threads.find(warp.number * 32 + lane);
  if (sync == warp.block->threads.end() || sync->second.fenced.empty()) {
    return std::nullopt;
  }
  return Publication{sync->second.fenced, std::min(form.scope, sync->second.fenced_scope), activity};
}

// Orders the accesses of the lanes before it in front of those after it.
void order_lanes(Warp& warp, const Instruction&, std::uint32_t lanes) {
  std::uint32_t epoch = 0;
  Knowledge acquired;
  for_each_lane(lanes, [&](std::uint32_t lane) {
    epoch = std::max(epoch, warp.epoch[lane]);
    if (const auto sync = warp.block->threads.find(warp.number * 32 + lane); sync != warp.block->threads.end()) {
      acquired.add(sync->second.acquired);
    }
  });
  for_each_lane(lanes, [&](std::uint32_t lane) {
    warp.epoch[lane] = epoch + 1;
    if (!acquired.empty()) {
      sync_of(warp, lane).acquired.add(acquired);
    }
  });
}

void fence(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  const std::string& name = i.operation->name;
  const Scope scope = name.find("cta") != std::string::npos   ? Scope::block
                      : name.find("sys") != std::string::npos ? Scope::system
                                                              : Scope::device;
  const bool consistent = name.find("acq_rel") == std::string::npos;  // membar is fence.sc
  for_each_lane(lanes, [&](std::uint32_t lane) {
    ThreadSync& sync = sync_of(warp, lane);
    if (scope == Scope::system || sync.observed_scope != Scope::system) {
      sync.acquired.add(sync.observed);
    }
    sync.fenced = release(warp, lane);
    sync.fenced_scope = scope;
    if (consistent) {
      Memory& memory = Machine::current->memory();
      memory.stores.fence(viewer_of(warp, lane, scope), scope, memory);
    }
  });
}

}  // namespace gradwire::ptx

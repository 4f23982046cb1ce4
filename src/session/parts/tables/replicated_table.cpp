#include "session/parts/tables/replicated_table.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "table/merge.hpp"
#include "table/options.hpp"
#include "table/row_batch.hpp"

namespace gradwire::session {
namespace {

using table::Shard;

SessionTableOptions checked(SessionTableOptions options) {
  table::check_rows(options);
  return options;
}

}  // namespace

ReplicatedTable::ReplicatedTable(SessionTableOptions options) : store_(checked(std::move(options))) {}

void ReplicatedTable::enter(const TableWorld& world, int rank) {
  store_.enter(table::ReplicaRing(world.members, world.nodes, options().copies), rank);
  forget_pushes();
}

void ReplicatedTable::check(const char* call, std::span<const std::uint64_t> ids, std::size_t elements) const {
  table::check_elements(said(call), ids.size(), elements, options().width);
  if (std::ranges::any_of(ids, [this](std::uint64_t id) { return id >= options().rows; })) {
    static_cast<void>(table::merge_ids(ids, options().rows, said(call).c_str()));  // throws an error that names the id
  }
}

void ReplicatedTable::bring_pushed() {
  if (store_.shard().tier() != nullptr) {
    table::RowBatch rows(pushes_.ids());
    static_cast<void>(rows.advance(store_.shard(), true, [](std::size_t, const float*, std::uint64_t) {}));
  }
}

void ReplicatedTable::save(table::SavedTable& to) {
  auto copy = std::make_unique<const Shard>(store_.shard().copy());
  to.own = copy->ids();
  std::erase_if(to.own, [this](std::uint64_t id) { return !store_.owns(id); });
  saved_->fetch_add(1, std::memory_order_relaxed);
  to.shard = std::shared_ptr<const Shard>(copy.release(), [saved = saved_](const Shard* shard) {
    std::default_delete<const Shard>()(shard);
    saved->fetch_sub(1, std::memory_order_release);
  });
}

void ReplicatedTable::add_blocks(std::vector<memory::Block*>& blocks) {
  if (saved_->load(std::memory_order_acquire) == 0) {
    store_.shard().add_blocks(blocks);
  }
}

bool ReplicatedTable::restore(const Shard::Row& row) {
  if (!store_.holds(row.id)) {
    return true;
  }
  if (store_.shard().contains(row.id)) {
    return false;
  }
  store_.shard().restore(row);
  return true;
}

}  // namespace gradwire::session

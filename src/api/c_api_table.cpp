// gradwire/tables.h, without the functions that make a table.
#include "gradwire/tables.h"

#include <span>

#include "api/c_api.hpp"

using gradwire::RowOptimizer;
using gradwire::Table;
using gradwire::api::guard;
using gradwire::api::ids_of;
using gradwire::api::required;
using gradwire::api::rows_of;
using gradwire::api::table_of;

namespace {

RowOptimizer row_optimizer_of(gradwire_row_optimizer optimizer, const char* function) {
  switch (optimizer) {
    case GRADWIRE_ROW_OPTIMIZER_DEFAULT:
    case GRADWIRE_ROW_SGD: return RowOptimizer::sgd;
    case GRADWIRE_ROW_ADAGRAD: return RowOptimizer::adagrad;
  }
  gradwire::api::refuse(function, "optimizer", optimizer, "GRADWIRE_ROW_SGD or GRADWIRE_ROW_ADAGRAD");
}

const gradwire_table_snapshot& snapshot_of(const gradwire_table_snapshot* handle, const char* function) {
  return required(handle, function, "snapshot", "one that gradwire_table_snapshot_create() made");
}

}  // namespace

namespace gradwire::api {

TableOptions table_options_of(const gradwire_table_options* given, const gradwire_policy* policy,
                              const char* function) {
  required(given, function, "options", "one with struct_size, rows and width set");
  const gradwire_table_options known = read_struct(given, "gradwire_table_options");
  TableOptions options;
  options.name = known.name == nullptr ? options.name : known.name;
  options.rows = known.rows;
  options.width = known.width;
  options.optimizer = row_optimizer_of(known.optimizer, function);
  options.learning_rate = known.learning_rate == 0 ? options.learning_rate : known.learning_rate;
  options.epsilon = known.epsilon == 0 ? options.epsilon : known.epsilon;
  options.initial_scale = known.initial_scale;
  options.seed = known.seed;
  options.codec = known.codec == nullptr ? options.codec : CodecSpec(known.codec);
  options.gradient_codec = known.gradient_codec == nullptr ? options.gradient_codec : CodecSpec(known.gradient_codec);
  options.staleness = known.staleness;
  options.read_own_writes = switch_of(known.read_own_writes, function, "read_own_writes").value_or(true);
  options.cache_bytes = known.cache_bytes;
  options.store = known.store == nullptr ? "" : known.store;
  options.memory = known.memory;
  options.timeout = timeout_of(known.timeout_ms, function);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // C has one struct for tables of both kinds
  options.copies = known.copies;
#pragma GCC diagnostic pop
  if (known.reserved != 0) {
    throw Error(ErrorCode::unsupported, std::string(function) + ": reserved is not 0");
  }
  if (policy == nullptr) {
    return options;
  }
  const std::string tensor = known.tensor == nullptr ? options.name : known.tensor;
  return table_options(policy->policy, tensor, std::move(options));
}

std::span<const std::uint64_t> ids_of(const std::uint64_t* ids, std::uint64_t count, const char* function) {
  check_data(ids, count, sizeof *ids, function, "ids");
  return {ids, static_cast<std::size_t>(count)};
}

gradwire_row_statistics row_statistics_of(const TableStatistics& found) noexcept {
  return {.struct_size = sizeof(gradwire_row_statistics),
          .rows_pulled = found.rows_pulled,
          .rows_own = found.rows_own,
          .rows_cached = found.rows_cached,
          .rows_unchanged = found.rows_unchanged,
          .rows_received = found.rows_received,
          .rows_pushed = found.rows_pushed,
          .maximum_age = found.maximum_age,
          .rows_held = found.rows_held,
          .rows_nonfinite = found.rows_nonfinite,
          .cache_bytes = found.cache_bytes,
          .bytes_sent = found.traffic.bytes_sent,
          .bytes_received = found.traffic.bytes_received,
          .messages_sent = found.traffic.messages_sent,
          .messages_received = found.traffic.messages_received,
          .mean_age = found.mean_age,
          .wait_seconds = found.wait_seconds,
          .rows_in_memory = found.store.rows_in_memory,
          .rows_in_file = found.store.rows_in_file,
          .store_hits = found.store.hits,
          .store_reads = found.store.reads,
          .store_memory_bytes = found.store.memory_bytes,
          .store_file_bytes = found.store.file_bytes};
}

}  // namespace gradwire::api

extern "C" {

int gradwire_table_rank(const gradwire_table* table) { return table == nullptr ? -1 : table->table.rank(); }

int gradwire_table_world_size(const gradwire_table* table) { return table == nullptr ? -1 : table->table.world_size(); }

gradwire_status gradwire_table_owner(const gradwire_table* table, uint64_t id, int* rank) {
  const char* function = __func__;
  return guard([&] {
    const Table& of = table_of(table, function);
    required(rank, function, "rank", "where to write it") = of.owner(id);
  });
}

gradwire_status gradwire_table_pull(gradwire_table* table, const uint64_t* ids, uint64_t count, float* rows) {
  const char* function = __func__;
  return guard([&] {
    Table& of = table_of(table, function);
    const auto which = ids_of(ids, count, function);
    of.pull(which, rows_of(rows, count, of.options().width, function, "rows"));
  });
}

gradwire_status gradwire_table_push(gradwire_table* table, const uint64_t* ids, uint64_t count,
                                    const float* gradients) {
  const char* function = __func__;
  return guard([&] {
    Table& of = table_of(table, function);
    const auto which = ids_of(ids, count, function);
    of.push(which, rows_of(gradients, count, of.options().width, function, "gradients"));
  });
}

gradwire_status gradwire_table_assign(gradwire_table* table, const uint64_t* ids, uint64_t count, const float* values) {
  const char* function = __func__;
  return guard([&] {
    Table& of = table_of(table, function);
    const auto which = ids_of(ids, count, function);
    of.assign(which, rows_of(values, count, of.options().width, function, "values"));
  });
}

gradwire_status gradwire_table_prefetch(gradwire_table* table, const uint64_t* ids, uint64_t count) {
  const char* function = __func__;
  return guard([&] { table_of(table, function).prefetch(ids_of(ids, count, function)); });
}

gradwire_status gradwire_table_tick(gradwire_table* table) {
  const char* function = __func__;
  return guard([&] { table_of(table, function).tick(); });
}

gradwire_status gradwire_table_clock(const gradwire_table* table, uint64_t* clock) {
  const char* function = __func__;
  return guard([&] {
    const Table& of = table_of(table, function);
    required(clock, function, "clock", "where to write it") = of.clock();
  });
}

gradwire_status gradwire_table_progress(gradwire_table* table) {
  const char* function = __func__;
  return guard([&] { table_of(table, function).progress(); });
}

gradwire_status gradwire_table_synchronize(gradwire_table* table) {
  const char* function = __func__;
  return guard([&] { table_of(table, function).synchronize(); });
}

gradwire_status gradwire_table_save(gradwire_table* table, const char* directory) {
  const char* function = __func__;
  return guard([&] {
    Table& of = table_of(table, function);
    of.save(&required(directory, function, "directory", "the name of one"));
  });
}

gradwire_status gradwire_table_load(gradwire_table* table, const char* directory) {
  const char* function = __func__;
  return guard([&] {
    Table& of = table_of(table, function);
    of.load(&required(directory, function, "directory", "the name of one"));
  });
}

gradwire_status gradwire_table_statistics(const gradwire_table* table, gradwire_row_statistics* statistics) {
  const char* function = __func__;
  return guard([&] {
    const Table& of = table_of(table, function);
    required(statistics, function, "statistics");
    gradwire::api::check_struct_size(statistics, "gradwire_row_statistics");
    const gradwire::TableStatistics found = of.statistics();
    gradwire::api::write_struct(gradwire::api::row_statistics_of(found), statistics);
  });
}

gradwire_status gradwire_table_abort(gradwire_table* table, const char* why) {
  const char* function = __func__;
  return guard([&] {
    Table& of = table_of(table, function);
    of.abort(&required(why, function, "why", "the reason as a text"));
  });
}

void gradwire_table_destroy(gradwire_table* table) { delete table; }

gradwire_status gradwire_table_snapshot_create(gradwire_table* table, gradwire_table_snapshot** snapshot) {
  const char* function = __func__;
  return guard([&] {
    gradwire_table_snapshot*& result = required(snapshot, function, "snapshot", "where to write it");
    result = nullptr;
    Table& of = table_of(table, function);
    result = new gradwire_table_snapshot{of.snapshot(), of.options().width};
  });
}

gradwire_status gradwire_table_snapshot_rows(const gradwire_table_snapshot* snapshot, uint64_t* rows) {
  const char* function = __func__;
  return guard([&] {
    const gradwire_table_snapshot& view = snapshot_of(snapshot, function);
    required(rows, function, "rows", "where to write their number") = view.snapshot.rows();
  });
}

gradwire_status gradwire_table_snapshot_find(const gradwire_table_snapshot* snapshot, uint64_t id,
                                             const float** values) {
  const char* function = __func__;
  return guard([&] {
    const float*& result = required(values, function, "values", "where to write their address");
    result = nullptr;
    const std::span<const float> row = snapshot_of(snapshot, function).snapshot.find(id);
    result = row.empty() ? nullptr : row.data();
  });
}

gradwire_status gradwire_table_snapshot_visit(const gradwire_table_snapshot* snapshot,
                                              void (*visit)(void* context, uint64_t id, const float* values,
                                                            uint32_t width),
                                              void* context) {
  const char* function = __func__;
  return guard([&] {
    const gradwire_table_snapshot& view = snapshot_of(snapshot, function);
    const auto& call = required(visit, function, "visit", "the function to call for each row");
    view.snapshot.for_each(
        [&](std::uint64_t id, std::span<const float> values) { call(context, id, values.data(), view.width); });
  });
}

void gradwire_table_snapshot_destroy(gradwire_table_snapshot* snapshot) { delete snapshot; }

}  // extern "C"

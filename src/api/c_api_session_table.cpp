// gradwire/tables.h: tables of a session.
#include "api/c_api.hpp"
#include "table/options.hpp"

using gradwire::TableId;
using gradwire::api::guard;
using gradwire::api::ids_of;
using gradwire::api::required;
using gradwire::api::rows_of;
using gradwire::api::session_of;

namespace {

/// The width of a table; 0 where there is none, which the session's call then reports.
std::uint32_t width_of(const gradwire_session& session, std::uint32_t table) {
  return table < session.table_widths.size() ? session.table_widths[table] : 0;
}

}  // namespace

extern "C" {

gradwire_status gradwire_session_add_table(gradwire_session* session, const gradwire_policy* policy,
                                           const gradwire_table_options* options, uint32_t* table) {
  const char* function = __func__;
  return guard([&] {
    gradwire::Session& of = session_of(session, function);
    const gradwire::SessionTableOptions wanted =
        gradwire::table::session_options_of(gradwire::api::table_options_of(options, policy, function));
    session->table_widths.reserve(session->table_widths.size() + 1);  // so that nothing throws once it is added
    const auto number = static_cast<std::uint32_t>(of.add_table(wanted));
    session->table_widths.push_back(wanted.width);
    if (table != nullptr) {
      *table = number;
    }
  });
}

gradwire_status gradwire_session_pull(gradwire_session* session, uint32_t table, const uint64_t* ids, uint64_t count,
                                      float* rows) {
  const char* function = __func__;
  return guard([&] {
    gradwire::Session& of = session_of(session, function);
    const auto which = ids_of(ids, count, function);
    const auto to = rows_of(rows, count, width_of(*session, table), function, "rows");
    static_cast<void>(of.pull(TableId{table}, which, to));  // false only over Processes, which C cannot make
  });
}

gradwire_status gradwire_session_push(gradwire_session* session, uint32_t table, const uint64_t* ids, uint64_t count,
                                      const float* gradients) {
  const char* function = __func__;
  return guard([&] {
    gradwire::Session& of = session_of(session, function);
    const auto which = ids_of(ids, count, function);
    of.push(TableId{table}, which, rows_of(gradients, count, width_of(*session, table), function, "gradients"));
  });
}

gradwire_status gradwire_session_table_statistics(const gradwire_session* session, uint32_t table,
                                                  gradwire_row_statistics* statistics) {
  const char* function = __func__;
  return guard([&] {
    const gradwire::Session& of = session_of(session, function);
    gradwire::api::check_struct_size(&required(statistics, function, "statistics", "where to write them"),
                                     "gradwire_row_statistics");
    const gradwire::TableStatistics found = of.table_statistics(TableId{table});
    gradwire::api::write_struct(gradwire::api::row_statistics_of(found), statistics);
  });
}

}  // extern "C"

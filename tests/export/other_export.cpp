// libgradwire_export.so of another time.
#include "export/http_table.hpp"

extern "C" const gradwire::metrics::ExportTable* gradwire_export_functions() {
  static constexpr gradwire::metrics::ExportTable kTable{999, nullptr};
  return &kTable;
}

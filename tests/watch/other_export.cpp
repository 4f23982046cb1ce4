// Stands for a libgradwire_export.so of another version.
#include "watch/http_table.hpp"

extern "C" const gradwire::watch::ExportTable* gradwire_export_functions() {
  static constexpr gradwire::watch::ExportTable kTable{999, nullptr};
  return &kTable;
}

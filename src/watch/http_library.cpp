#include "watch/http_library.hpp"

#include "base/companion_library.hpp"

namespace gradwire::watch {
namespace {

constexpr CompanionLibrary kLibrary{
    kExportFile, "gradwire_export_functions", "metrics: GRADWIRE_METRICS=http:...",
    "install the package gradwire-export, or build gradwire where prometheus-cpp-dev is installed, or "
    "write file:DIRECTORY, which needs neither. The job goes on without"};

}  // namespace

const ExportTable& load_http_library(const std::string& file) {
  const auto* table = reinterpret_cast<decltype(&gradwire_export_functions)>(load_companion(kLibrary, file))();
  if (table->version != kExportVersion) {
    refuse_companion(kLibrary, "but the one that was found has version " + std::to_string(table->version) + " where " +
                                   std::to_string(kExportVersion) + " is needed");
  }
  return *table;
}

}  // namespace gradwire::watch

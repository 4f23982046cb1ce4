// Metrics of this process, as the environment asks for them.
#pragma once

#include <functional>
#include <string>

#include "export/totals.hpp"

namespace gradwire::metrics {

struct ExportOptions {
  TotalsOptions of = {};
  std::function<void(const std::string&)> warn = {};  // none: the log
};

/// Begins to write what GRADWIRE_METRICS, GRADWIRE_TRACE and GRADWIRE_REPORT ask for, at the first call of a process;
/// later ones do nothing. A value that is wrong is told once, and the job goes on. Any thread.
void export_from_environment(const ExportOptions& options = {}) noexcept;

}  // namespace gradwire::metrics

// The report and the summary that this process writes at its end, about all its groups.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "drop_in/ledger.hpp"
#include "plugins/torch_c10d/observing.hpp"

namespace gradwire::torch_c10d {

/// Prints a line on standard error.
void say(const std::string& line) noexcept;

/// The contents of the report besides the numbers.
struct Reporting {
  std::mutex mutex;
  std::shared_ptr<Observing> observing;     // null unless it observes
  std::optional<drop_in::ReportHead> head;  // on the rank 0 of the first group
  std::optional<std::string> file;
  bool quiet = false;
};
[[nodiscard]] Reporting& reporting();

}  // namespace gradwire::torch_c10d
